import type { Collection, Db, Document } from 'mongodb'
import {
  type Handler,
  type LeaseLoss,
  type Logger,
  lifecycleOf,
  Replica,
  type ReplicaObserver,
  type ReplicaOptions,
  type RunnableLifecycle,
  type StepEnded,
} from '../../src/index.js'
import { backDate as backDateAll } from '../../src/testing/index.js'
import { type Clock, systemClock } from '../../src/time/index.js'

/** A small lifecycle that most engine tests use: one working phase up, one down. */
export interface Thing {
  _id: string
  state?: 'Running' | 'Stopped' | 'Deleted'
  n?: number
  effects?: string[]
}

export const thingSpec = {
  name: 'thing',
  collection: 'Thing',
  phases: {
    Creating: { next: ['Created', 'Deleting'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: ['Creating', 'Created'], moveTo: 'Deleting' }],
} as const

export const thing = lifecycleOf<Thing>().define(thingSpec)

export type CreatingHandler = Handler<'Created' | 'Deleting', Thing>

/** The lifecycle with a handler for Creating; Deleting goes straight on. */
export function thingWith(Creating: CreatingHandler, lifecycle = thing): RunnableLifecycle {
  return lifecycle.handle({ Creating, Deleting: async (_doc, step) => step.moveTo('Deleted') })
}

/** The same with other settings. */
export const thingOf = (settings: object) => lifecycleOf<Thing>().define({ ...thingSpec, ...settings }) as typeof thing

export const things = (db: Db): Collection<Document & { _id: string }> => db.collection('Thing')

/** Keeps lines about a blocked event loop only if a test asks for them: on a busy machine any test meets some. */
export function recordingLogger({
  blocked = false,
} = {}): Logger & { lines: { level: string; message: string; fields?: object }[] } {
  const lines: { level: string; message: string; fields?: object }[] = []
  const at = (level: string) => (message: string, fields?: object) => {
    if (blocked || !message.startsWith('the event loop was blocked'))
      lines.push(fields ? { level, message, fields } : { level, message })
  }
  return { lines, debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
}

export function recordingObserver(): ReplicaObserver & { steps: StepEnded[]; losses: LeaseLoss[] } {
  const steps: StepEnded[] = []
  const losses: LeaseLoss[] = []
  return { steps, losses, stepEnded: (event) => void steps.push(event), leaseLost: (event) => void losses.push(event) }
}

/** A replica that isn't started: tests tick it by hand. */
export const replicaOf = (db: Db, lifecycle: RunnableLifecycle, more: Partial<ReplicaOptions> = {}): Replica =>
  new Replica({ db, lifecycles: [lifecycle], ...more })

/** Lets time pass for one thing: its sleep ends, its lease expires, its deadline comes. */
export const backDate = (db: Db, id: string, ms: number, collection = 'Thing'): Promise<number> =>
  backDateAll(db.collection(collection), ms, { filter: { _id: id as never } })

/** The system's clock, which a test may put forward. */
export class ShiftedClock implements Clock {
  private shiftMs = 0
  now = () => systemClock.now()
  monotonicMs = () => systemClock.monotonicMs() + this.shiftMs
  advance(ms: number): void {
    this.shiftMs += ms
  }
}

/** A promise with its handles, to hold a handler until the test lets it go. */
export function gate<T = void>(): { wait: Promise<T>; open: (value: T) => void } {
  const { promise, resolve } = Promise.withResolvers<T>()
  return { wait: promise, open: resolve }
}

/** A clock on which time passes only when a test says so, however slow the machine is. */
export class SteppedClock implements Clock {
  private ms = 1_000
  now = () => systemClock.now()
  monotonicMs = () => this.ms
  advance(ms: number): void {
    this.ms += ms
  }
}
