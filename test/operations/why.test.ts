import { describe, expect, test } from '@jest/globals'
import { type Document } from 'mongodb'
import { childIndex, LIFECYCLES_COLLECTION, PARKED_AT, REPLICAS_COLLECTION } from '../../src/lock/index.js'
import { cancelStep, pauseWork, removeDocument, type TermName, whyDocument } from '../../src/operations/index.js'
import { eventually } from '../support/database.js'
import { thingOf, things } from '../support/thing.js'
import { ago, IN_AN_HOUR, lifecycle, useWhy } from './why-world.js'

describe('why a document does not go on: by its own fields', () => {
  const { database, system, collection, insert, present, termNow, without } = useWhy()

  const own: readonly (readonly [TermName, Document, object])[] = [
    ['shape', { progress: [1] }, { evidence: { field: 'progress', found: 'an array' } }],
    ['shape', { lockedAt: [] }, { action: { command: 'phaselock check --repair' } }],
    [
      'park',
      {
        lockedAt: PARKED_AT,
        progress: { history: [{ at: ago(9_000), outcome: 'park', reason: 'no ink', by: 'api~1#2.3' }] },
      },
      {
        evidence: { reason: 'no ink', by: 'api~1#2.3', at: expect.any(Date) },
        sentence: expect.stringMatching(/^Parked because 'no ink'/),
        action: { command: 'phaselock unpark a', prediction: { would: 'change', blockedBy: null } },
      },
    ],
    ['phase', { phase: 'Craeting' }, { text: "its phase 'Craeting' is unknown to thing; did you mean 'Creating'" }],
    [
      'lease',
      { lockedAt: ago(1_000), lockedBy: 'gone~1#2.3', progress: { step: 'pack' } },
      {
        evidence: { replica: 'gone~1', alive: 'unknown', step: 'pack', askedToStop: null },
        sentence: expect.stringMatching(/^Held by gone~1 .* not among the replicas/),
      },
    ],
    [
      'handler',
      { phase: 'Created' },
      { evidence: { kind: 'resting' }, action: { command: 'phaselock set-state a Deleted' } },
    ],
    ['handler', { phase: 'Deleted' }, { evidence: { kind: 'final' } }],
    [
      'sleep',
      {
        lockedAt: IN_AN_HOUR(),
        fence: 1,
        progress: { waitingFor: 'rain', waitingOn: 'weather', waitingSince: ago(3_000) },
      },
      {
        evidence: { kind: 'wait', on: 'weather', waitingFor: 'rain' },
        action: { command: 'phaselock wake a', prediction: { blockedBy: null } },
      },
    ],
    [
      'sleep',
      {
        lockedAt: IN_AN_HOUR(),
        progress: { attempts: 3, error: { name: 'E', message: 'refused', cause: '0123456789ab' } },
      },
      { evidence: { kind: 'error', error: 3, of: 20, cause: '0123456789ab' } },
    ],
    [
      'sleep',
      {
        lockedAt: new Date('9999-11-30T23:59:30Z'),
        progress: { question: { id: 'q', question: 'Ship?', options: ['yes'], askedAt: ago(9) } },
      },
      {
        evidence: { kind: 'question', question: 'Ship?' },
        action: { command: 'phaselock answer a <option>', prediction: { would: 'change' } },
      },
    ],
    [
      'sleep',
      { lockedAt: new Date('9999-11-30T23:59:30Z'), progress: { question: 5 } },
      { evidence: { kind: 'unanswerable' } },
    ],
    ['sleep', { lockedAt: IN_AN_HOUR() }, { evidence: { kind: 'later' } }],
    [
      'sleep',
      { lockedAt: IN_AN_HOUR(), progress: { steps: 1_001 }, fence: 4 },
      { evidence: { kind: 'steps', steps: 1_001 } },
    ],
    [
      'sleep',
      {
        lockedAt: IN_AN_HOUR(),
        progress: {
          waitingFor: '100 calls',
          outbox: { seq: 100, open: Array.from({ length: 100 }, (_, i) => ({ seq: i, callback: 'onRemoved' })) },
        },
      },
      { evidence: { kind: 'outbox' } },
    ],
    [
      'rule',
      { state: 'Deleted' },
      {
        evidence: { kind: 'rule', moveTo: 'Deleting' },
        sentence: expect.stringContaining('the next look moves it to Deleting'),
      },
    ],
    [
      'rule',
      { progress: { since: ago(7_200_000) } },
      {
        evidence: { kind: 'deadline', moveTo: 'Deleting' },
        sentence: expect.stringMatching(/^Due since [\d.]+ s, but its deadline was/),
      },
    ],
  ]
  test.each(own)('%s fails: case %#', async (name, document, expected) => {
    await present()
    await insert(document)
    expect(await termNow(name)).toMatchObject({ holds: false, blockedBy: name, ...expected })
  })

  test('removal: it only has callbacks to deliver', async () => {
    await present()
    await insert({})
    await removeDocument(system(), { id: 'a' })
    expect(await termNow('removal')).toMatchObject({
      holds: false,
      blockedBy: 'removal',
      evidence: { from: 'Creating' },
    })
  })

  test('lease: by a live replica, whether it is asked to stop, and by a dead one', async () => {
    const replica = await present()
    await insert({})
    await replica.tick()
    await eventually(() => expect(replica.status().running).toBe(1))
    expect(await termNow('lease')).toMatchObject({
      holds: false,
      evidence: { replica: replica.identity, alive: true, askedToStop: null },
    })
    await cancelStep(system(), { id: 'a' }, { by: 'ana', reason: 'stuck', waitMs: 0 })
    expect(await termNow('lease')).toMatchObject({ evidence: { askedToStop: { by: 'ana', reason: 'stuck' } } })
    await collection(REPLICAS_COLLECTION).updateMany({}, [{ $set: { seenAt: { $subtract: ['$$NOW', 60_000] } } }])
    expect(await termNow('lease')).toMatchObject({
      evidence: { alive: false },
      sentence: expect.stringContaining(`${replica.identity} is dead`),
    })
    await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedAt: ago(40_000) } })
    expect(await termNow('lease')).toMatchObject({
      holds: true,
      evidence: { expired: expect.stringContaining('api~') },
    })
  })

  test('pause: which, by whom, and what its end would do', async () => {
    await present()
    await insert({})
    await pauseWork(system(), { lifecycle: 'thing', phase: 'Creating', by: 'ana', reason: 'no ink' })
    expect(await termNow('pause')).toMatchObject({
      ...{ holds: false, blockedBy: 'pause', evidence: { pauses: [{ what: 'phase', by: 'ana', reason: 'no ink' }] } },
      sentence: expect.stringMatching(/^Paused with its phase by ana .*: 'no ink'/),
      action: { command: 'phaselock resume thing --phase Creating', prediction: { would: 'change', blockedBy: null } },
    })
    await pauseWork(system(), { lifecycle: 'thing', id: 'a', by: 'ben' })
    expect(await termNow('pause')).toMatchObject({ action: { prediction: { blockedBy: 'pause' } } })
  })

  test('handler: unknown if an older version has registered only the name of its phase', async () => {
    await present()
    await insert({ phase: 'Odd' })
    await collection(LIFECYCLES_COLLECTION).updateOne({ _id: 'thing' }, { $push: { phases: 'Odd' } } as never)
    const named = { name: 'Odd', kind: 'working', next: [], deadline: undefined, keepForMs: 0 } as const
    const model = { ...lifecycle.model, phases: new Map([...lifecycle.model.phases, ['Odd', named]]) }
    expect(await termNow('handler', { models: [model] })).toMatchObject({ holds: 'unknown', blockedBy: 'replica' })
  })

  test('lease: of a document that no claim can use, by what is stored, whatever else is the matter with it', async () => {
    await present()
    await insert({ phase: 'Odd', lockedAt: new Date(), lockedBy: 'other~1#2.3', fence: 1 })
    expect(await termNow('lease')).toMatchObject({ holds: false, evidence: { by: 'other~1#2.3', replica: 'other~1' } })
    await things(database.db).updateOne({ _id: 'a' }, { $set: { phase: 'Creating', lockedAt: /x/ as never } })
    expect(await termNow('lease')).toMatchObject({ holds: 'unknown', evidence: { by: 'other~1#2.3' } })
    await things(database.db).updateOne({ _id: 'a' }, { $unset: { lockedBy: 1 } })
    expect(await termNow('lease')).toMatchObject({ holds: true })
  })

  test('sleep: what it waits for has its own why, three levels deep', async () => {
    await present()
    const awaits = (id: string) => ({
      lockedAt: IN_AN_HOUR(),
      phase: 'Creating',
      progress: { waitingFor: id, awaits: { kind: 'document', lifecycle: 'thing', id, phases: ['Created'] } },
    })
    const all = ['a', 'b', 'c', 'd'].map((_id, i) => ({ _id, ...awaits('bcde'[i]!) }))
    await things(database.db).insertMany([...all, { _id: 'e', phase: 'Creating', lockedAt: PARKED_AT }])
    const { evidence, sentence } = await termNow('sleep')
    expect(evidence).toMatchObject({
      kind: 'document',
      awaited: {
        document: 'b',
        blockedBy: 'sleep',
        awaited: { document: 'c', awaited: { document: 'd', blockedBy: 'sleep', awaited: null } },
      },
    })
    expect(sentence).toMatch(/It waits for another: thing b: Sleeps/)
    await things(database.db).deleteOne({ _id: 'b' })
    expect(await termNow('sleep')).toMatchObject({
      sentence: expect.stringContaining('thing b: there is no such document'),
    })
  })

  test('sleep: of the children that it waits for, the parked one, with its own why', async () => {
    const child = thingOf({
      ...{ name: 'child', collection: 'Child', child: true, rules: [] },
      phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
    })
    await present()
    await database.db.collection('Child').createIndex(childIndex('progress'))
    const awaits = { kind: 'children', rule: 'allSucceeded', parked: 'waits' }
    const children = [{ list: 'parts', lifecycle: 'child', total: 2 }]
    await insert({
      lockedAt: IN_AN_HOUR(),
      fence: 9,
      progress: { waitingFor: 'its children', awaits, children, childrenFrom: 5 },
    })
    const of = (key: string) => ({ parent: { lifecycle: 'thing', id: 'a', key, list: 'parts', fence: 6 } })
    await database.db.collection<Document & { _id: string }>('Child').insertMany([
      { _id: 'a-1', phase: 'Creating', progress: of('1') },
      { _id: 'a-2', phase: 'Creating', lockedAt: PARKED_AT, progress: of('2') },
    ])
    const models = [lifecycle.model, child.model]
    expect(await termNow('sleep', { models })).toMatchObject({
      ...{ holds: false, blockedBy: 'sleep', action: undefined },
      evidence: {
        kind: 'children',
        awaited: { children: { rule: 'allSucceeded' }, child: { document: 'a-2', blockedBy: 'park' } },
      },
      sentence: expect.stringMatching(/It waits for another: of its children, child a-2: Parked/),
    })
    // What can't be read of the children is unknown, and all else is judged.
    const db = without('Child')
    const { terms, ...verdict } = await whyDocument(system({ models, db }), { lifecycle: 'thing', id: 'a' })
    expect({ ...terms.find(({ name }) => name === 'sleep'), ...verdict }).toMatchObject({
      ...{ holds: false, blockedBy: 'sleep', evidence: { awaited: { unknown: 'not authorized on Child' } } },
      sentence: expect.stringContaining("what that is can't be read: not authorized on Child"),
    })
    await database.db.collection('Child').dropIndexes()
    expect(await termNow('sleep', { models })).toMatchObject({
      sentence: expect.stringContaining("what that is can't be read: "),
    })
    await database.db.collection('Child').createIndex(childIndex('progress'))
    await database.db.collection('Child').deleteMany({})
    expect(await termNow('sleep', { models })).toMatchObject({
      sentence: expect.stringContaining('no child of it is open'),
    })
  })
})
