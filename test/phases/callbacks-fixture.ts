import { afterEach } from '@jest/globals'
import type { Document } from 'mongodb'
import {
  type CallbackCall,
  type CallbackEvent,
  lifecycleOf,
  Replica,
  type ReplicaOptions,
  type RunnableLifecycle,
  silentLogger,
} from '../../src/index.js'
import type { CalledBack } from '../../src/phases/reporting/observer.js'
import { backDate } from '../../src/testing/index.js'
import { useDatabase } from '../support/database.js'

export interface Job {
  _id: string
  state?: 'Deleted'
  fails?: boolean
}

export const jobSpec = {
  name: 'job',
  collection: 'Job',
  phases: {
    First: { next: ['Second'] },
    Second: { next: ['Done'] },
    Done: { rest: true, deadline: { after: '1h', moveTo: 'Gone' } },
    Gone: { final: true },
  },
  rules: [{ when: 'Deleted', from: ['Done'], moveTo: 'Gone' }],
  maxAttempts: 3,
} as const

export const job = lifecycleOf<Job>().define({
  ...jobSpec,
  callbacks: ['onMoved', 'onParked', 'onTimeout'],
  callbackTimeout: '200ms',
})

/** The same, told of removals too. */
export const removedJob = lifecycleOf<Job>().define({
  ...jobSpec,
  callbacks: ['onMoved', 'onParked', 'onTimeout', 'onRemoved'],
  callbackTimeout: '200ms',
}) as unknown as typeof job

export type Told = CallbackEvent<Job> & { readonly callback: string; readonly attempt: number }

const handlers = {
  First: async (doc: Readonly<Job>, step: typeof job.$step.First) =>
    doc.fails ? step.park('it fails') : step.moveTo('Second'),
  Second: async (_doc: unknown, step: typeof job.$step.Second) => step.moveTo('Done'),
}

/** Jobs whose callbacks keep what they were told in `told`; `each` may do more, such as throw. */
export function jobsWith(
  each: (told: Told, call: CallbackCall) => unknown = () => undefined,
  lifecycle: typeof job = job,
) {
  const told: Told[] = []
  const callback = (name: string) => async (event: CallbackEvent<Job>, call: CallbackCall) => {
    const one = { ...event, callback: name, attempt: call.attempt }
    told.push(one)
    await each(one, call)
  }
  const declared = lifecycle.model.settings.callbacks ?? []
  const callbacks = Object.fromEntries(declared.map((name) => [name, callback(name)]))
  return { told, lifecycle: lifecycle.handle(handlers, callbacks) }
}

/** What was told, in a few words each. */
export const said = (told: readonly Told[]) =>
  told.map(({ callback, seq, from, to }) => `${seq} ${callback} ${from}>${to}`)

/** A database, and replicas on it. To be called in a `describe`. */
export function useJobs() {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const database = useDatabase()
  const jobs = () => database.db.collection<Document & { _id: string }>('Job')
  const stored = async (_id = 'j') => (await jobs().findOne({ _id })) as Record<string, any>
  const insert = (_id = 'j', more: Partial<Job> = {}) => jobs().insertOne({ _id, phase: 'First', ...more })
  const calls: CalledBack[] = []
  afterEach(() => void calls.splice(0))

  async function prepared(lifecycles: RunnableLifecycle[], options: Partial<ReplicaOptions> = {}): Promise<Replica> {
    const observer = { calledBack: (one: CalledBack) => void calls.push(one) }
    const replica = new Replica({ db: database.db, lifecycles, logger: silentLogger, observer, ...options })
    replicas.push(replica)
    await replica.prepare()
    return replica
  }
  const pass = (ms: number) => backDate(jobs() as never, ms)
  return { database, jobs, stored, insert, prepared, pass, calls }
}
