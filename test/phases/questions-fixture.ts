import { afterEach } from '@jest/globals'
import {
  OwnerClient,
  type Replica,
  type ReplicaOptions,
  type RunnableLifecycle,
  type StepAnswer,
  silentLogger,
} from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { type CreatingHandler, replicaOf, thing, thingOf, thingSpec, things, thingWith } from '../support/thing.js'

export const SHIP = { question: 'Ship it?', options: ['yes', 'no'], to: ['ops', 'ana'] } as const
export const yes = { option: 'yes', by: 'ana' } as const

/** What is deleted stays, to be looked at. */
export const kept = thingOf({ phases: { ...thingSpec.phases, Deleted: { final: true, keepFor: '1h' } } })

/** Asks, and goes on with what was answered. */
export function asking(more: object = {}) {
  const answers: (StepAnswer | undefined)[] = []
  const handler: CreatingHandler = async (_doc, step) => {
    answers.push(step.answer)
    if (!step.answer) return step.ask({ ...SHIP, ...more })
    return step.moveTo('Created', { set: { effects: [String(step.answer.option)] } })
  }
  return { answers, lifecycle: thingWith(handler, kept) }
}

/** A database, and replicas of documents that ask. To be called in a `describe`. */
export function useQuestions() {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()
  const ownerOf = () => new OwnerClient(database.db, thing.model)
  const stored = (_id = 'a') => things(database.db).findOne({ _id }) as Promise<Record<string, any>>
  const insert = (...ids: string[]) => things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))

  async function prepared(lifecycle: RunnableLifecycle, options: Partial<ReplicaOptions> = {}) {
    const replica = replicaOf(database.db, lifecycle, { logger: silentLogger, ...options })
    replicas.push(replica)
    await replica.prepare()
    return replica
  }

  /** `a` asks, of this handler. */
  async function asked(more: object = {}) {
    const { answers, lifecycle } = asking(more)
    const replica = await prepared(lifecycle)
    await insert('a')
    await replica.runOnce()
    return { answers, lifecycle, replica, owner: ownerOf() }
  }
  return { database, ownerOf, stored, insert, prepared, asked }
}
