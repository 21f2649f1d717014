import { describe, expect, test } from '@jest/globals'
import { type Collection, type Db, type Document, MongoServerError } from 'mongodb'
import { lifecycleOf, Replica } from '../../src/index.js'
import { boundedScanProblems } from '../../src/lock/documents/plan-scans.js'
import {
  BadQueryPlan,
  CLAIM_INDEX,
  checkPlans,
  type LookRequest,
  Looks,
  type PlanFinding,
  ServerClock,
  STATE_INDEX,
  unusableLockIndexes,
} from '../../src/lock/index.js'
import { problemsOf } from '../../src/lock/setup/plan-check.js'
import { systemClock } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { lockedCollection, PHASE, TERMS } from './fixture.js'

const REQUEST: LookRequest = {
  lifecycle: 'thing',
  collection: 'Thing',
  terms: TERMS,
  phases: [PHASE, 'Deleting'],
  rules: [{ when: 'Deleted', from: [PHASE, 'Created'], moveTo: 'Deleting' }],
}

const check = (db: Db): Promise<PlanFinding[]> => {
  const serverClock = new ServerClock(systemClock)
  return checkPlans({ db, looks: new Looks(db, systemClock, serverClock), serverClock, requests: [REQUEST] })
}

describe('the self-check of query plans', () => {
  const database = useDatabase()
  const register = async () => {
    await database.db.collection('phaselock.lifecycles').insertOne({ _id: 'thing' as never, lockTimeout: 30_000 })
    return lockedCollection(database.db)
  }

  test('finds nothing on an empty collection, a full one, and one with a multikey index', async () => {
    const collection = await register()
    expect(await check(database.db)).toEqual([])
    const documents = (phase: string) => Array.from({ length: 2_000 }, () => ({ phase, state: 'Running' }))
    await collection.insertMany([...documents('Created'), ...documents(PHASE)])
    expect(await check(database.db)).toEqual([])
    await collection.insertOne({ phase: PHASE, lockedAt: [new Date(0), new Date()] })
    expect(await check(database.db)).toEqual([])
  })

  test('without the claim index: it is named, and every claim and look that would scan', async () => {
    const collection = await register()
    await collection.dropIndex('phase_1_lockedAt_1_updatedAt_1')
    const findings = await check(database.db)
    expect(findings[0]).toEqual({
      what: 'index {"phase":1,"lockedAt":1,"updatedAt":1} of Thing',
      problem: 'it is missing',
      advice: `run db.getCollection('Thing').createIndex({"phase":1,"lockedAt":1,"updatedAt":1})`,
    })
    const what = findings.map((finding) => finding.what)
    expect(what).toContain(`claim of ${PHASE} in Thing (fresh)`)
    expect(what).toContain(`claim of ${PHASE} in Thing (woken)`)
    expect(what).toContain(`look for due documents of ${PHASE} in Thing`)
    expect(findings.find(({ what }) => what.startsWith('look for due'))?.problem).toMatch(/COLLSCAN/)
  })

  test('without the state index: the look for the rule is a finding, whatever other index it takes', async () => {
    const collection = await register()
    await collection.dropIndex('state_1_phase_1')
    const findings = await check(database.db)
    expect(findings.map(({ what }) => what)).toEqual([
      'index {"state":1,"phase":1} of Thing',
      'look for state Deleted in Thing',
    ])
  })

  test('a collection that does not exist has no indexes', async () => {
    const missing = (await check(database.db)).filter(({ problem }) => problem === 'it is missing')
    expect(missing).toHaveLength(2)
  })

  const scan = (more: Document): Document => ({
    stage: 'IXSCAN',
    keyPattern: CLAIM_INDEX,
    indexName: 'phase_1_lockedAt_1_updatedAt_1',
    indexBounds: { phase: ['["A", "A"]'], lockedAt: ['[MinKey, new Date(1))'], updatedAt: ['[MinKey, MaxKey]'] },
    ...more,
  })
  const limited = (inputStage: Document): Document => ({ stage: 'LIMIT', inputStage: { stage: 'FETCH', inputStage } })
  const open = { phase: ['["A", "A"]'], lockedAt: ['[MinKey, MaxKey]'], updatedAt: ['[MinKey, MaxKey]'] }
  const explains: [string, Document, string[]][] = [
    ['classic', { queryPlanner: { winningPlan: limited(scan({})) } }, []],
    [
      'slot-based',
      { queryPlanner: { winningPlan: { queryPlan: limited(scan({})), slotBasedPlan: { stages: '[2] COLLSCAN' } } } },
      [],
    ],
    [
      'an aggregate',
      { stages: [{ $cursor: { queryPlanner: { winningPlan: limited(scan({})) } } }, { $limit: 1 }] },
      [],
    ],
    ['sharded', { shards: { one: { queryPlanner: { winningPlan: limited(scan({})) } } } }, []],
    [
      'min and max, whose bounds are keys',
      { queryPlanner: { winningPlan: scan({ indexBounds: { startKey: {}, endKey: {} } }) } },
      [],
    ],
    ['express', { queryPlanner: { winningPlan: scan({ stage: 'EXPRESS_IXSCAN' }) } }, []],
    [
      'a rejected collection scan',
      { queryPlanner: { winningPlan: scan({}), rejectedPlans: [{ stage: 'COLLSCAN' }] } },
      [],
    ],
    ['a collection that does not exist', { queryPlanner: { winningPlan: { stage: 'EOF' } } }, []],
    [
      'a collection scan',
      { queryPlanner: { winningPlan: { stage: 'COLLSCAN' } } },
      ['COLLSCAN of the whole collection'],
    ],
    [
      'an open range',
      { queryPlanner: { winningPlan: scan({ indexBounds: open }) } },
      ['IXSCAN of phase_1_lockedAt_1_updatedAt_1 without bounds on lockedAt'],
    ],
    [
      'another index',
      { queryPlanner: { winningPlan: scan({ keyPattern: STATE_INDEX, indexName: 's' }) } },
      ['IXSCAN of s'],
    ],
    [
      'a blocking sort',
      { queryPlanner: { winningPlan: { stage: 'SORT', inputStage: scan({}) } } },
      ['a blocking sort'],
    ],
    ['no plan at all', { ok: 1 }, ['no index scan in its plan']],
  ]
  test.each(explains)('reads explains of other servers: %s', (_name, explained, problems) => {
    expect(boundedScanProblems(explained, CLAIM_INDEX)).toEqual(problems)
  })
})

/** What MongoDB 5.0 says of the look for a rule's state, where both indexes would do: the embedded engine always takes the right one. */
describe('a look whose index the server chooses', () => {
  const plan = (inputStage: Document) => ({
    queryPlanner: { winningPlan: { stage: 'LIMIT', limitAmount: 1, inputStage: { stage: 'FETCH', inputStage } } },
  })
  const byPhase = plan({
    stage: 'IXSCAN',
    keyPattern: CLAIM_INDEX,
    indexName: 'phase_1_lockedAt_1_updatedAt_1',
    indexBounds: {
      phase: ['["Created", "Created"]', '["Creating", "Creating"]'],
      lockedAt: ['[MinKey, MaxKey]'],
      updatedAt: ['[MinKey, MaxKey]'],
    },
  })
  const byState = plan({
    stage: 'IXSCAN',
    keyPattern: STATE_INDEX,
    indexName: 'state_1_phase_1',
    indexBounds: {
      state: ['["Deleted", "Deleted"]'],
      phase: ['["Created", "Created"]', '["Creating", "Creating"]'],
    },
  })
  const examined = (totalKeysExamined: number, totalDocsExamined: number) => ({
    executionStats: { executionSuccess: true, nReturned: 0, totalKeysExamined, totalDocsExamined },
  })
  const asked = (chosen: Document, hinted: () => Promise<Document>) =>
    problemsOf({
      query: { explain: async () => chosen },
      hinted: { explain: hinted },
      index: STATE_INDEX,
      boundedFields: 2,
    })
  const OTHER = 'IXSCAN of phase_1_lockedAt_1_updatedAt_1'
  const missing = async () => {
    throw new MongoServerError({ message: 'hint provided does not correspond to an existing index', code: 2 })
  }

  test.each([
    ['an empty collection', examined(0, 0)],
    ['50,000 documents, all in other phases', examined(1, 0)],
    ['one document, which both find at once', examined(1, 1)],
    ['a cluster', { shards: { a: examined(0, 0), b: examined(1, 0) } }],
  ])('where it reads nothing, its choice says nothing: %s', async (_name, stats) => {
    expect(await asked({ ...byPhase, ...stats }, async () => byState)).toEqual([])
  })

  test('nor where it reads no more than its own index would have it read', async () => {
    const own = async () => ({ ...byState, ...examined(40, 40) })
    expect(await asked({ ...byPhase, ...examined(45, 40) }, own)).toEqual([])
    expect(await asked({ ...byPhase, ...examined(400, 400) }, own)).toEqual([OTHER])
  })

  test('it is a finding where it reads, and where its own index can’t be used', async () => {
    expect(await asked({ ...byPhase, ...examined(40_000, 40_000) }, async () => byState)).toEqual([OTHER])
    expect(await asked({ ...byPhase, ...examined(0, 0) }, missing)).toEqual([OTHER])
    // An index filter counts more than a hint.
    expect(await asked({ ...byPhase, ...examined(0, 0) }, async () => byPhase)).toEqual([OTHER])
    expect(await asked(byPhase, async () => byState)).toEqual([OTHER])
  })
})

test('a default collation is told once, with what works: no index can mend it', async () => {
  const collation = { locale: 'en', caseLevel: false, strength: 2, version: '57.1' }
  const index = (key: Document) => ({ v: 2, key, name: Object.keys(key).join(), collation })
  const of = (indexes: Document[]) =>
    unusableLockIndexes({ collectionName: 'Thing', indexes: async () => indexes } as never as Collection)
  const told = [
    {
      key: CLAIM_INDEX,
      what: 'collection Thing',
      problem: expect.stringMatching(/^it has a default collation \(en, strength 2\)/),
      command: expect.stringContaining("renameCollection('Thing', true)"),
    },
  ]
  expect(await of([CLAIM_INDEX, STATE_INDEX, { _id: 1 }].map(index))).toEqual(told)
  const simple = [CLAIM_INDEX, STATE_INDEX].map((key) => ({ v: 2, key, name: 'x' }))
  expect(await of([...simple, index({ _id: 1 })])).toEqual(told)
  expect(await of([...simple, { v: 2, key: { _id: 1 }, name: '_id_' }])).toEqual([])
})

describe('a replica that starts', () => {
  const database = useDatabase()
  const thing = lifecycleOf<{ _id: string; state?: 'Deleted' }>()
    .define({
      name: 'thing',
      collection: 'Thing',
      phases: { Creating: { next: ['Created'] }, Created: { rest: true }, Deleted: { final: true } },
      rules: [{ when: 'Deleted', from: ['Creating', 'Created'], moveTo: 'Deleted' }],
    })
    .handle({ Creating: async (_doc, step) => step.moveTo('Created') })

  async function start(onBadPlan?: 'warn' | 'refuse') {
    const errors: string[] = []
    const nothing = () => undefined
    const logger = {
      debug: nothing,
      info: nothing,
      warn: nothing,
      error: (message: string) => void errors.push(message),
    }
    const replica = new Replica({ db: database.db, lifecycles: [thing], logger, onBadPlan })
    const failure = await replica.prepare().then(
      () => undefined,
      (error: unknown) => error,
    )
    await replica.stop()
    return { errors, failure }
  }
  /** Somebody hid the index: it is there, and nothing can use it. */
  const hide = () => database.db.collection('Thing').createIndex(STATE_INDEX, { hidden: true })

  test('says nothing of sound plans, also when it may refuse', async () => {
    expect(await start('refuse')).toEqual({ errors: [], failure: undefined })
  })

  test('says every bad plan loudly, and goes on', async () => {
    await hide()
    const { errors, failure } = await start()
    expect(failure).toBeUndefined()
    expect(errors.join('\n')).toMatch(
      /bad query plan: index \{"state":1,"phase":1\} of Thing: it is of another kind \(hidden\)/,
    )
  })

  test('refuses to start where it is told to, with the findings', async () => {
    await hide()
    const { failure, errors } = await start('refuse')
    expect(failure).toBeInstanceOf(BadQueryPlan)
    expect((failure as BadQueryPlan).findings.length).toBe(errors.length)
    expect((failure as BadQueryPlan).message).toMatch(/expected claims and looks to be bounded scans/)
  })
})
