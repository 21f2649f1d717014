import { Need, needsModule, note, noted } from '../../decorated/index.js'
import type { CallbackName } from '../../lock/index.js'
import { meant, shown } from '../../options/index.js'
import { InvalidLifecycle } from '../errors/errors.js'
import { type LifecycleModel, workingPhases } from '../model/model.js'

/** A class's methods that handle phases, by lifecycle; kept on the class itself, so no registry outlives it. */
const HANDLED = Symbol.for('phaselock:handled')

/** The need of the decorator, met by the Nest module, which finds the methods. */
export const HANDLERS_NEED = new Need({
  decorator: '@lifecycle.OnPhase',
  module: 'PhaselockModule.forRoot() (phaselock/nest)',
  without: 'handles no document',
})

export interface HandledPhase {
  readonly lifecycle: string
  readonly phase: string
  readonly method: string | symbol
}

/** The need of the decorator, met by the Nest module, which finds the methods. */
export const CALLBACKS_NEED = new Need({
  decorator: '@lifecycle.Callback',
  module: 'PhaselockModule.forRoot() (phaselock/nest)',
  without: 'is never called',
})

const CALLED_BACK = Symbol.for('phaselock:called-back')

export interface CallbackMethod {
  readonly lifecycle: string
  readonly callback: CallbackName
  readonly method: string | symbol
}

export function onCallback(model: LifecycleModel, callback: CallbackName) {
  return (proto: object, key: string | symbol): void => {
    const { callbacks = [] } = model.settings
    if (!callbacks.includes(callback)) {
      const declared = callbacks.length > 0 ? callbacks.join(', ') : 'there are none'
      throw new InvalidLifecycle(model.name, [
        `Callback(${shown(callback)}): expected one of its callbacks (${declared})${meant(String(callback), callbacks)}`,
      ])
    }
    needsModule(proto, key, CALLBACKS_NEED)
    note<CallbackMethod>(proto, CALLED_BACK, { lifecycle: model.name, callback, method: key })
  }
}

/** The callbacks that an instance's methods are, inherited ones included. */
export function callbackMethods(instance: object): readonly CallbackMethod[] {
  return noted(instance, CALLED_BACK)
}

export function onPhase(model: LifecycleModel, phase: string) {
  return (proto: object, key: string | symbol): void => {
    const working = workingPhases(model)
    if (!working.includes(phase)) {
      throw new InvalidLifecycle(model.name, [
        `OnPhase(${shown(phase)}): expected a working phase (${working.join(', ')})${meant(String(phase), working)}`,
      ])
    }
    needsModule(proto, key, HANDLERS_NEED)
    note<HandledPhase>(proto, HANDLED, { lifecycle: model.name, phase, method: key })
  }
}

/** The phases that an instance's methods handle, inherited ones included. */
export function handledPhases(instance: object): readonly HandledPhase[] {
  return noted(instance, HANDLED)
}
