/** The program of a worker thread: piscina calls its exports for each task. Loaded once per thread, so it loads little itself. */
import { createRequire } from 'node:module'
import { InvalidOutcome } from '../errors/errors.js'
import { textOf } from '../errors/kept-text.js'
import { isMadeBy } from '../outcome/outcome.js'
import type { ThreadDeclaration } from './declaration.js'
import { Cell, type StepResult, type StepTask } from './messages.js'
import { sentError } from './sent-error.js'
import { ThreadStep } from './thread-step.js'
import { type Bson, Wire } from './wire.js'

const require = createRequire(import.meta.url)
/** The library that the driver itself uses: a handler's `import { ObjectId } from 'mongodb'` is the same class. */
const wire = new Wire(createRequire(require.resolve('mongodb'))('bson') as Bson)

/** The step that runs now, to log rejections that no code awaits. */
let current: ThreadStep | undefined

process.on('unhandledRejection', (error) => {
  current?.log.error('a promise was rejected in a thread and nothing handled it: a handler does not await it', {
    error,
  })
})

/** Loads a module; returns why it lacks the declared function, or undefined if it has it. */
export async function check(declaration: ThreadDeclaration): Promise<string | undefined> {
  try {
    await handlerOf(declaration)
    return undefined
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

export async function step(task: StepTask): Promise<StepResult> {
  try {
    new Cell(task.cell).begins()
    const handler = await handlerOf(task.declaration)
    const document = wire.document(task.document)
    current = new ThreadStep(task, document, wire)
    return returned(await handler(document, current), task)
  } catch (error) {
    return { kind: 'threw', error: sentError(error) }
  } finally {
    current = undefined
    // The replica closes the port; nothing more is heard on it here.
    task.port.removeAllListeners('message')
    task.port.unref()
  }
}

async function handlerOf({ module, export: name }: ThreadDeclaration): Promise<(...args: unknown[]) => unknown> {
  const loaded: Record<string, unknown> = await import(module)
  // A CommonJS module's exports may all be on its default.
  const found = loaded[name] ?? (loaded['default'] as Record<string, unknown> | undefined)?.[name]
  if (typeof found === 'function') return found as never
  const names = Object.keys(loaded).filter((key) => typeof loaded[key] === 'function')
  const which = name === 'default' ? 'a default export' : `an export '${name}'`
  const has = names.length > 0 ? `functions that it exports: ${names.join(', ')}` : 'it exports no functions'
  throw new TypeError(
    `${module}: expected ${which} that is a function, got ${found === undefined ? 'none' : typeof found}; ${has}`,
  )
}

/** Splits the outcome into its parts: a value that can't be sent is refused here, where it can be named. */
function returned(value: unknown, task: StepTask): StepResult {
  if (typeof value !== 'object' || value === null) return { kind: 'returned', value: primitive(value), set: undefined }
  if (!isMadeBy(task, value)) throw new InvalidOutcome('the handler returned an outcome of another step')
  const { set, ...outcome } = value as Record<string, unknown>
  const parts = Object.fromEntries(Object.entries(outcome).map(([name, part]) => [name, primitive(part)]))
  return { kind: 'returned', value: parts, set: set === undefined ? undefined : wire.encodeSet(set) }
}

const isTexts = (value: unknown): boolean => Array.isArray(value) && value.every((one) => typeof one === 'string')

/** Strings, numbers and lists of strings as they are; for anything else, the engine's text for an unexpected value. */
function primitive(value: unknown): unknown {
  if (isTexts(value)) return value // a question's options
  if (typeof value === 'function' || typeof value === 'symbol') return String(value)
  return typeof value === 'object' && value !== null ? textOf(value) : value
}
