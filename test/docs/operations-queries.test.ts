import { afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { lifecycleOf, Replica, Unavailable } from '../../src/index.js'
import { backDate } from '../../src/testing/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate } from '../support/thing.js'
import { Mongosh } from './mongosh.js'
import { type CodeBlock, codeBlocks, readPage } from './page.js'

interface Bucket {
  _id: string
  state?: 'Running' | 'Deleted'
}

const bucket = lifecycleOf<Bucket>().define({
  name: 'bucket',
  collection: 'Bucket',
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Deleted', from: ['Creating', 'Created'], moveTo: 'Deleting' }],
})

const PARKED = new Date('9999-12-31')
const BALLAST = 300
const HOUR_MS = 3_600_000

// Before useDatabase: hooks run in the order in which they stand here, and its own closes the client.
afterEach(async () => {
  await shell.close()
  held.open()
  await replica.stop()
})

const database = useDatabase()
let blocks: CodeBlock[]
let shell: Mongosh
let replica: Replica
let documents: Collection<Document & { _id: string }>
let held: ReturnType<typeof gate<void>>
let asked: Map<string, { result: any; explained: Document | undefined }>

const ofQuestion = (start: string): CodeBlock => {
  const found = blocks.filter(({ heading }) => heading.startsWith(start))
  expect({ start, blocks: found.length }).toEqual({ start, blocks: 1 })
  return found[0]!
}

/** Runs the block under a heading that begins so. */
function ask(start: string): any {
  const block = ofQuestion(start)
  const result = shell.run(block.code)
  const isQuery = /\.(find|aggregate)\(/.test(block.code)
  asked.set(block.heading, { result, explained: isQuery ? shell.explainLast() : undefined })
  return result
}

const ids = (found: Document[]) => found.map(({ _id }) => _id).sort()
const later = (path: string) => ({ $add: [path, 300_000] })
/** When this test's documents were made: however long the test takes, they are as old as they were then. */
let madeAtMs: number
const minutesAgo = (date: Date) => Math.round((madeAtMs - date.getTime()) / 60_000)

beforeAll(async () => {
  blocks = codeBlocks(await readPage('docs/operations-queries.md'))
})

/** One document in each condition, made by a replica as far as a replica makes it, beside many that rest and many that sleep. */
beforeEach(async () => {
  const { db } = database
  documents = db.collection('Bucket')
  held = gate()
  const handled = bucket.handle({
    async Creating(doc, step) {
      if (doc._id === 'held') await held.wait
      if (doc._id === 'parked') return step.park('its name is taken')
      if (doc._id === 'failing') throw new Error('no route to storage')
      if (doc._id === 'unavailable') throw new Unavailable('storage is down', { retryAfter: '10m' })
      if (doc._id === 'sleeping' && step.name === undefined) return step.again({ step: 'wait for it' })
      if (/^sleeping|^ballast/.test(doc._id)) return step.wait('storage is busy', { for: '2h' })
      return step.moveTo('Created')
    },
    Deleting: async (_doc, step) => step.moveTo('Deleted'),
  })
  replica = new Replica({ db, lifecycles: [handled], name: 'api-1' })
  await replica.prepare()
  const made = ['parked', 'failing', 'unavailable', 'sleeping', 'sleeping-long', 'resting', 'was-failing']
  const ballast = Array.from({ length: BALLAST }, (_, n) => [
    { _id: `resting-${n}`, phase: 'Created', state: 'Idle', lockedAt: new Date(0) },
    { _id: `ballast-${n}`, phase: 'Creating' },
  ]).flat()
  await documents.insertMany([
    ...made.map((_id) => ({ _id, phase: 'Creating', state: 'Running' })),
    { _id: 'final', phase: 'Creating', state: 'Deleted' },
    { _id: 'put-aside', phase: 'Creating', progress: '70 %' },
    ...ballast,
  ])
  madeAtMs = Date.now()
  await replica.runOnce()
  // Its first pauses are short: it must not come due while the questions are asked.
  await documents.updateOne({ _id: 'failing' }, [
    { $set: { lockedAt: later('$lockedAt'), 'progress.resumeAt': later('$progress.resumeAt') } },
  ])
  await backDate(db.collection('Bucket'), 3 * HOUR_MS, { filter: { _id: /^(sleeping-long|was-failing)$/ as never } })
  // As a step long ago had failed, and it went on since.
  const old = { at: new Date(Date.now() - 3 * HOUR_MS), from: 'Creating', to: 'Creating', step: null, outcome: 'error' }
  await documents.updateOne(
    { _id: 'was-failing' },
    { $set: { 'progress.history.0': { ...old, reason: 'too old', by: 'api-0~1#1.1', ms: 5, count: 1 } } },
  )
  await documents.insertMany([
    { _id: 'held', phase: 'Creating' },
    { _id: 'unknown', phase: 'Craeting' },
  ])
  await replica.tick()
  await eventually(() => expect(replica.status().running).toBe(1))
  const crashed = { phase: 'Deleting', lockedBy: 'api-0~7#3.1', lockedAt: new Date(madeAtMs - 90_000) }
  await documents.insertMany([
    { _id: 'due', phase: 'Creating', createdAt: new Date(madeAtMs - 70_000) },
    { _id: 'crashed', ...crashed, progress: { claims: 4, attempts: 0 } },
  ])
  await documents.updateOne({ _id: 'sleeping-long' }, [{ $set: { lockedAt: { $add: ['$lockedAt', 3 * HOUR_MS] } } }])
  asked = new Map()
  shell = new Mongosh(database.uri, db.databaseName)
  ask('First')
})

test('the questions about what is there', () => {
  expect(ask('How many are in each phase')).toEqual([
    { _id: 'Craeting', documents: 1 },
    { _id: 'Created', documents: BALLAST + 2 },
    { _id: 'Creating', documents: BALLAST + 8 },
    { _id: 'Deleted', documents: 1 },
    { _id: 'Deleting', documents: 1 },
  ])

  const due = ask('What is due now')
  expect(due.map((one: Document) => [one['_id'], one['phase'], one['lastHolder'], minutesAgo(one['since'])])).toEqual([
    ['due', 'Creating', undefined, 1],
    ['crashed', 'Deleting', 'api-0~7#3.1', 1],
  ])

  const [holds, ...others] = ask('Who holds what')
  expect(others).toEqual([])
  expect(holds).toMatchObject({ _id: 'held', phase: 'Creating' })
  expect(holds.lockedBy).toMatch(new RegExp(`^${replica.identity}#\\d+\\.1$`))
  expect(holds.leaseEnds.getTime() - holds.renewedAt.getTime()).toBe(30_000)
  expect(ask('How many does each replica hold')).toEqual([
    { _id: replica.identity, documents: 1, longestNotRenewed: holds.renewedAt },
  ])

  const sleeping = ask('What sleeps') as Document[]
  expect(sleeping).toHaveLength(BALLAST + 4)
  const slept = new Map(sleeping.map((one) => [one['_id'], one]))
  expect(slept.get('failing')).toMatchObject({ error: 'no route to storage' })
  expect(slept.get('unavailable')).toMatchObject({ waitingFor: 'storage is down' })
  expect(minutesAgo(slept.get('unavailable')!['until'])).toBe(-10)
  expect(slept.get('sleeping')).toMatchObject({ phase: 'Creating', waitingFor: 'storage is busy' })
  expect(minutesAgo(slept.get('sleeping')!['until'])).toBe(-120)
  expect(sleeping[0]!['_id']).toBe('failing')

  const parked = new Map((ask('What is parked') as Document[]).map(({ _id, ...why }) => [_id, why]))
  expect(parked).toEqual(
    new Map([
      [
        'parked',
        { phase: 'Creating', state: 'Running', why: 'its name is taken', error: 'Parked', at: expect.any(Date) },
      ],
      ['put-aside', { phase: 'Creating', at: null }],
    ]),
  )
  expect(ask('Which documents are in a phase that nobody knows')).toEqual([{ _id: 'unknown', phase: 'Craeting' }])
  expectIndexesAsDocumented()
})

test('the questions about what goes wrong', () => {
  expect(ask('What fails now')).toEqual([
    {
      _id: 'failing',
      phase: 'Creating',
      attempts: expect.any(Number),
      error: expect.objectContaining({ message: 'no route to storage' }),
      tryAgainAt: expect.any(Date),
    },
  ])
  const failed = ask('What has failed within the last hour') as Document[]
  expect(new Set(failed.map((one) => `${one['id']} ${one['phase']}: ${one['error']}`))).toEqual(
    new Set(['failing Creating: no route to storage']),
  )
  const waits = ask('What has waited for longer than an hour')
  expect(waits.map((one: Document) => [one['_id'], one['waitingFor'], minutesAgo(one['since'])])).toEqual([
    ['sleeping-long', 'storage is busy', 180],
  ])
  expect(ask('Which were claimed, and claimed again')).toEqual([
    { _id: 'crashed', phase: 'Deleting', lockedBy: 'api-0~7#3.1', claimsWithoutOutcome: 4 },
  ])
  expectIndexesAsDocumented()
})

test('the questions about what has happened', () => {
  const went = ask('What did a document go through')
  expect(went.map((one: Document) => [one['outcome'], one['step'], one['reason']])).toEqual([
    ['again', null, null],
    ['wait', 'wait for it', 'storage is busy'],
  ])
  const most = ask('Which replica did most')
  // Every document that was made took one step; two took two; the histories of two end before the last hour.
  expect(most).toEqual([{ _id: replica.identity, steps: expect.any(Number), last: expect.any(Date) }])
  expect(most[0].steps).toBeGreaterThanOrEqual(BALLAST + 6)
  const steps = ask('How long do steps take') as Document[]
  expect(steps.map(({ _id, recorded }) => [_id.phase, _id.step, recorded]).sort()).toEqual([
    ['Creating', null, expect.any(Number)],
    ['Creating', 'wait for it', 1],
    ['Deleting', null, 1],
  ])
  for (const { mean, longest } of steps) expect(longest).toBeGreaterThanOrEqual(mean)
  expectIndexesAsDocumented()
})

test('which lockTimeout is in force, before, during and after a change', async () => {
  const lifecycles = database.db.collection<Document & { _id: string }>('phaselock.lifecycles')
  const inForce = () => ask('Which lockTimeout is in force')[0]
  expect(inForce()).toMatchObject({ _id: 'bucket', collection: 'Bucket', lockTimeout: 30_000, judgedBy: 30_000 })
  expect(inForce().lastLook).toBeInstanceOf(Date)
  const changed = (ms: number, secondsAgo: number) =>
    lifecycles.updateOne(
      { _id: 'bucket' },
      {
        $set: {
          lockTimeout: ms,
          lockTimeoutWas: 30_000,
          lockTimeoutSince: new Date(Date.now() - secondsAgo * 1_000),
        },
      },
    )
  await changed(20_000, 5)
  expect(inForce()).toMatchObject({ lockTimeout: 20_000, judgedBy: 30_000 })
  await changed(20_000, 60)
  expect(inForce()).toMatchObject({ lockTimeout: 20_000, judgedBy: 20_000 })
  await changed(60_000, 1)
  expect(inForce()).toMatchObject({ lockTimeout: 60_000, judgedBy: 60_000 })
})

describe('by hand', () => {
  test('wake: only what sleeps', async () => {
    const { code } = ofQuestion('Wake')
    expect(ask('Wake')).toMatchObject({ matchedCount: 1 })
    const woken = await documents.findOne({ _id: 'sleeping' })
    expect(woken).toMatchObject({
      phase: 'Creating',
      lockedAt: new Date(0),
      progress: { waitingFor: 'storage is busy' },
    })
    expect(woken?.['progress']).not.toHaveProperty('resumeAt')
    for (const id of ['held', 'parked', 'nobody']) {
      expect(shell.run(code.replace("'sleeping'", `'${id}'`))).toMatchObject({ matchedCount: 0 })
    }
    expect(ids(ask('What is due now'))).toEqual(['crashed', 'due', 'sleeping'])
  })

  test('unpark: only what is parked and has our shape; with all attempts, and its history says so', async () => {
    const { code } = ofQuestion('Unpark')
    expect(ask('Unpark')).toMatchObject({ matchedCount: 1 })
    const document = await documents.findOne({ _id: 'parked' })
    expect(document).toMatchObject({ lockedAt: new Date(0), progress: { attempts: 0, claims: 0 } })
    expect(document?.['progress']).not.toHaveProperty('error')
    const { history } = document!['progress']
    expect(history.map((entry: Document) => [entry['outcome'], entry['by'], entry['from']])).toEqual([
      ['park', expect.any(String), 'Creating'],
      ['owner', 'ann', 'Creating'],
    ])
    for (const id of ['held', 'sleeping', 'put-aside']) {
      expect(shell.run(code.replace("'parked'", `'${id}'`))).toMatchObject({ matchedCount: 0 })
    }
    expect(await documents.findOne({ _id: 'put-aside' })).toMatchObject({ lockedAt: PARKED, progress: '70 %' })
  })

  test('state: only while it is what was seen; then the rule moves it', async () => {
    expect(ask('Set a document')).toMatchObject({ matchedCount: 1 })
    expect(ask('Set a document')).toMatchObject({ matchedCount: 0 })
    held.open()
    await replica.runOnce()
    expect(await documents.findOne({ _id: 'resting' })).toMatchObject({ phase: 'Deleted', state: 'Deleted' })
  })
})

test('no block of the page is left out', async () => {
  const tested = `${await readPage('test/docs/operations-queries.test.ts')}`
  for (const { heading } of blocks) {
    const start = [...tested.matchAll(/ask\('([^']+)'\)/g)].find(([, asks]) => heading.startsWith(asks!))
    expect({ heading, tested: start !== undefined }).toEqual({ heading, tested: true })
  }
})

/** What the page says about a block's index is what the server does. */
function expectIndexesAsDocumented(): void {
  for (const [heading, { result, explained }] of asked) {
    if (!explained) continue
    const { after } = ofQuestion(heading)
    const stages = JSON.stringify(explained)
    const scans = { collection: /COLLSCAN/.test(stages), claim: /phase_1_lockedAt_1_updatedAt_1/.test(stages) }
    const keys = Number(/"totalKeysExamined":(\d+)/.exec(stages)?.[1])
    const docs = Number(/"totalDocsExamined":(\d+)/.exec(stages)?.[1])
    if (after.startsWith('No index')) expect({ heading, ...scans }).toMatchObject({ heading, collection: true })
    else if (after.startsWith('Served by `_id`')) expect({ heading, keys }).toEqual({ heading, keys: 1 })
    else {
      expect({ heading, ...scans }).toEqual({ heading, collection: false, claim: true })
      if (/only/.test(after)) expect({ heading, few: keys <= result.length + 5 }).toEqual({ heading, few: true })
      if (/no document/.test(after)) expect({ heading, docs }).toEqual({ heading, docs: 0 })
      // Nothing that rests.
      if (/working phases|sleeps/.test(after))
        expect({ heading, few: keys <= BALLAST + 20 }).toEqual({ heading, few: true })
    }
  }
}
