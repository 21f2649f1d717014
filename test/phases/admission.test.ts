import { describe, expect, test } from '@jest/globals'
import { type CommandStartedEvent, type Document, MongoClient } from 'mongodb'
import { Limits, Replica } from '../../src/index.js'
import { idKey, LIMITS_COLLECTION } from '../../src/lock/index.js'
import { Admission } from '../../src/phases/engine/claim/admission.js'
import type { Claimer } from '../../src/phases/engine/claim/claimer.js'
import { PhaseQueue } from '../../src/phases/engine/claim/phase-queue.js'
import type { SlotWaiter } from '../../src/phases/engine/limits/limit-leases.js'
import { ManualClock } from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { type CreatingHandler, gate, recordingLogger, thingOf, thingSpec, things, thingWith } from '../support/thing.js'

const ROOM = 10
const BELT = { limit: 'belt', slots: 1 }

/** A limit as one replica knows it: what it believes to be free before it asks, and what it gets when it asks. */
interface Known {
  readonly free: number
  readonly granted: number
  /** True if only slots that are given back here are free. */
  readonly areAllHere?: boolean
}

/** The admission of a lifecycle whose slots of limits are here: it records each request, and what is in use. */
function admissionOf(belt: Known | undefined, ofKey?: Readonly<Record<string, number>>) {
  const asked: string[] = []
  const used = new Map<string, number>()
  const add = (limit: string, n: number) => used.set(limit, (used.get(limit) ?? 0) + n)
  const leases = {
    free: () => belt!.free,
    areAllHere: () => belt?.areAllHere ?? false,
    async take(_phase: object, most: number, _by: SlotWaiter, wanted = most) {
      const count = Math.min(most, belt!.granted - (used.get('belt') ?? 0))
      asked.push(`belt ${most} of ${wanted}`)
      add('belt', count)
      return count
    },
    async takeOf({ limit }: { limit: string }, most: number) {
      const count = Math.min(most, ofKey![limit.split('=')[1]!]!)
      asked.push(`${limit.split('=')[1]} ${most}`)
      add(limit, count)
      return { count, isAllHere: false }
    },
    release({ limits = [] }: { limits?: readonly { limit: string }[] }, count: number) {
      for (const { limit } of limits) add(limit, -count)
    },
    againIn: () => ({ notBeforeMs: 0 }),
    onFree: () => undefined,
  }
  const model = {
    name: 'thing',
    settings: ofKey ? { limitBy: 'tenant', each: 2 } : {},
    phases: new Map([['Creating', { name: 'Creating', kind: 'working', ...(belt && { limits: [BELT] }) }]]),
  }
  const admission = new Admission(model as never, leases as never, new ManualClock())
  const inUse = () => Object.fromEntries([...used].filter(([, n]) => n !== 0))
  return { admission, asked, inUse }
}

const documents = (tenants: string): Document[] => [...tenants].map((tenant, i) => ({ _id: `${i}`, tenant }))
const NONE_FREE = { by: 'limits' }

/**
 * Each: what is known of the limit, the values of the documents that are due, the slots of each value. Then: the places of the choice, the requests,
 * the documents that were admitted, the obstacle.
 */
const TABLE: readonly [
  what: string,
  given: { belt?: Known; due: string; keys?: Readonly<Record<string, number>> },
  then: { places: number; asked: string[]; admitted: string; isBlocked?: boolean },
][] = [
  [
    'fewer are due than may have slots: these are asked for, and no more',
    { belt: { free: 5, granted: 5 }, due: 'ab' },
    { places: 5, asked: ['belt 2 of 2'], admitted: 'ab' },
  ],
  [
    'as many are due as may be chosen: slots for all the room are asked for, because more may follow',
    { belt: { free: 2, granted: 5 }, due: 'ab' },
    { places: 2, asked: ['belt 2 of 10'], admitted: 'ab' },
  ],
  [
    'the same, but only those that are given back here are free: no more are asked for',
    { belt: { free: 2, granted: 5, areAllHere: true }, due: 'ab' },
    { places: 2, asked: ['belt 2 of 2'], admitted: 'ab' },
  ],
  [
    'nothing is known of the limit: the room bounds the choice',
    { belt: { free: Number.POSITIVE_INFINITY, granted: 3 }, due: 'abcde' },
    { places: 10, asked: ['belt 5 of 5'], admitted: 'abc', isBlocked: true },
  ],
  [
    'fewer slots are granted than were believed free: the first documents have them',
    { belt: { free: 4, granted: 1 }, due: 'abcd' },
    { places: 4, asked: ['belt 4 of 10'], admitted: 'a', isBlocked: true },
  ],
  [
    'none is free as far as is known: asked before the look, and full',
    { belt: { free: 0, granted: 0 }, due: 'abc' },
    { places: 0, asked: ['belt 10 of 10'], admitted: '', isBlocked: true },
  ],
  [
    'none is free as far as is known: asked before the look, once, and some are',
    { belt: { free: 0, granted: 3 }, due: 'abcde' },
    { places: 3, asked: ['belt 10 of 10'], admitted: 'abc' },
  ],
  ['nothing is due any more', { belt: { free: 5, granted: 5 }, due: '' }, { places: 5, asked: [], admitted: '' }],
  [
    'keys: one request for each value that was chosen',
    { due: 'aab', keys: { a: 1, b: 1 } },
    { places: 10, asked: ['a 2', 'b 1'], admitted: 'ab', isBlocked: true },
  ],
  [
    'a limit and keys: only documents with a slot of the limit ask for one of their key',
    { belt: { free: 5, granted: 2 }, due: 'abc', keys: { a: 1, b: 1, c: 1 } },
    { places: 5, asked: ['belt 3 of 3', 'a 1', 'b 1'], admitted: 'ab', isBlocked: true },
  ],
  [
    'a limit and keys: what has none of its key gives back the slot of the limit',
    { belt: { free: 5, granted: 5 }, due: 'abc', keys: { a: 0, b: 1, c: 0 } },
    { places: 5, asked: ['belt 3 of 3', 'a 1', 'b 1', 'c 1'], admitted: 'b', isBlocked: true },
  ],
]

test.each(TABLE)('%s', async (_what, { belt, due, keys }, { places, asked, admitted, isBlocked = false }) => {
  const its = admissionOf(belt, keys)
  const claim = its.admission.forClaim(new PhaseQueue('Creating'))!
  expect(await claim.places(ROOM)).toBe(places)
  const chosen = documents(due).slice(0, places)
  const some = places === 0 ? [] : await claim.admit(chosen)
  expect(some.map(({ tenant }) => tenant).join('')).toBe(admitted)
  expect(its.asked).toEqual(asked)
  // All but the last are won; the slots of the last go back.
  const held = some.slice(0, -1).map((document) => claim.takenFor(idKey(document['_id']), document)!)
  claim.over(held.length)
  const expected: Record<string, number> = {}
  for (const { limit } of held.flat()) expected[limit] = (expected[limit] ?? 0) + 1
  expect(its.inUse()).toEqual(expected)
  if (isBlocked) expect(claim.obstacle).toMatchObject(NONE_FREE)
  else expect(claim.obstacle).toBeUndefined()
})

test('a phase without limits and keys has no admission', () => {
  const { admission } = admissionOf(undefined)
  expect(admission.forClaim(new PhaseQueue('Creating'))).toBeUndefined()
  expect(admission.isNeededIn('Creating')).toBe(false)
})

test('a document that was won and whose key has changed has no slots: they go back', async () => {
  const { admission, inUse } = admissionOf({ free: 5, granted: 5 }, { a: 1 })
  const claim = admission.forClaim(new PhaseQueue('Creating'))!
  await claim.places(ROOM)
  const [document] = await claim.admit(documents('a'))
  expect(claim.takenFor(idKey(document!['_id']), { ...document, tenant: 'b' })).toBeUndefined()
  claim.over(1)
  expect(inUse()).toEqual({})
})

describe('the commands of a claim under a limit', () => {
  const ends = useEnds()
  const database = useDatabase()

  /** A replica whose documents need a slot of `belt`, the commands of its claims, and the handlers' gate. */
  async function limited(slots: number) {
    await new Limits(database.db).set('belt', { slots })
    const client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    const end = gate()
    const phases = { ...thingSpec.phases, Creating: { next: ['Created', 'Deleting'], limits: ['belt'] } }
    const creating: CreatingHandler = async (_doc, step) => {
      await end.wait
      return step.moveTo('Created')
    }
    const db = client.db(database.db.databaseName)
    const lifecycles = [thingWith(creating, thingOf({ phases }))]
    const replica = new Replica({ db, lifecycles, logger: recordingLogger(), doorbell: 'off' })
    ends.push(async () => {
      end.open()
      await replica.stop()
      await client.close()
    })
    await replica.prepare()
    const sent: string[] = []
    client.on('commandStarted', ({ commandName, command }: CommandStartedEvent) => {
      const on = command[commandName]
      if (on === LIMITS_COLLECTION) sent.push('ask')
      if (on === 'Thing') sent.push(commandName)
    })
    const [{ claimer }] = (replica as never as { running: [{ claimer: Claimer }] }).running
    /** Ticks, waits for the claim, and returns the commands. */
    const tick = async () => {
      sent.length = 0
      await replica.tick()
      while (claimer.current) await claimer.current
      return [...new Set(sent)].filter((name) => name !== 'aggregate')
    }
    const leased = () => replica.status().limits.map((one) => one.leased)
    return { sent, tick, leased }
  }

  test('one document is due: after the look one slot of five is leased, and others are free for other replicas', async () => {
    const { tick, leased } = await limited(5)
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    expect((await tick()).slice(0, 3)).toEqual(['find', 'ask', 'findAndModify'])
    expect(leased()).toEqual([1])
  })

  test('a limit that is full costs no look, and one that has slots again is asked once', async () => {
    const { tick, sent } = await limited(5)
    const until = new Date(Date.now() + 3_600_000)
    const holders = [{ by: 'gone~1', slots: 5, until }]
    const limits = database.db.collection<{ _id: string }>(LIMITS_COLLECTION)
    await limits.updateOne({ _id: 'belt' }, { $set: { holders } })
    await things(database.db).insertMany(['a', 'b'].map((_id) => ({ _id, phase: 'Creating' })))
    expect(await tick()).toEqual(['find', 'ask']) // nothing was known of it
    expect(await tick()).toEqual(['ask'])
    await limits.updateOne({ _id: 'belt' }, { $set: { holders: [] } })
    const held = () => things(database.db).countDocuments({ lockedBy: { $exists: true } })
    await eventually(async () => expect(await held()).toBe(2))
    expect(sent.slice(sent.lastIndexOf('ask'), sent.lastIndexOf('ask') + 2)).toEqual(['ask', 'find'])
  })
})
