import { expect } from '@jest/globals'
import { BSON, type Db } from 'mongodb'
import type { BrokenDocument, ReplicaOptions } from '../../src/index.js'
import { TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import { eventually } from '../support/database.js'
import {
  type CreatingHandler,
  recordingLogger,
  replicaOf,
  ShiftedClock,
  thingOf,
  things,
  thingWith,
} from '../support/thing.js'

export const HEALTHY = 100
export const LIMIT = 16 * 1024 * 1024
/** Longer than a document is left alone that refuses writes, however often it has refused: a slow run may have tried it more often. */
export const LONGEST_PAUSE_MS = 600_000

/** A replica, what it tells of broken documents, and its clock. */
export function watchedReplica(
  db: Db,
  handler: CreatingHandler = async (_doc, step) => step.moveTo('Created'),
  settings: object = {},
) {
  const events: BrokenDocument[] = []
  const logger = recordingLogger()
  const clock = new ShiftedClock()
  const options: Partial<ReplicaOptions> = { logger, clock, observer: { broken: (event) => void events.push(event) } }
  return { one: replicaOf(db, thingWith(handler, thingOf(settings)), options), events, logger, clock }
}

export async function putHealthyIn(db: Db): Promise<void> {
  const lockedAt = TASK_LOCK_INIT_TIME
  await things(db).insertMany(
    Array.from({ length: HEALTHY }, (_, i) => ({ _id: `healthy-${i}`, phase: 'Creating', lockedAt })),
  )
}

export async function expectHealthyDoneIn(db: Db, run: () => Promise<unknown>): Promise<void> {
  const done = { _id: /^healthy/, phase: 'Created' }
  // Again where a command took too long, as a replica does that ticks.
  await eventually(
    async () => {
      await run()
      expect(await things(db).countDocuments(done)).toBe(HEALTHY)
    },
    { timeoutMs: 90_000 },
  )
}

/** An outcome with effects can't be stored in the document 'bad': its error is recorded, those of 100 others too. */
export async function expectOthersRecorded(db: Db, message: RegExp): Promise<void> {
  await putHealthyIn(db)
  const { one } = watchedReplica(db, async (doc, step) =>
    step.moveTo('Created', { set: { effects: [doc._id === 'bad' ? 'x'.repeat(250_000) : 'x'] } }),
  )
  await one.prepare()
  await expectHealthyDoneIn(db, () => one.runOnce())
  const bad = (await things(db).findOne({ _id: 'bad' }))!
  expect(bad['phase']).toBe('Creating')
  expect(bad['progress']).toMatchObject({
    attempts: expect.any(Number),
    error: { name: 'MongoServerError', message: expect.stringMatching(message) },
  })
}

export function bigDocument(_id: string, spare: number) {
  const document = { _id, phase: 'Creating', blob: '' }
  document.blob = 'x'.repeat(LIMIT - spare - BSON.calculateObjectSize(document))
  return document
}
