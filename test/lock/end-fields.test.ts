import { describe, expect, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import {
  type EndKind,
  PARKED_AT,
  ruleUpdate,
  type StateRule,
  type StepEnd,
  TASK_LOCK_INIT_TIME,
} from '../../src/lock/index.js'
import { renewUpdate } from '../../src/lock/lease/lease.js'
import { ASKS_FOREVER } from '../../src/lock/record/progress.js'
import { useDatabase } from '../support/database.js'
import {
  again,
  ago,
  checkpoint,
  claimed,
  endOf,
  failed,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  moveTo,
  PHASE,
  park,
  put,
  read,
  released,
  TERMS,
  unlock,
  wait,
  writer,
} from './fixture.js'

/** A document with every field that a write might touch, asleep until a moment ago. */
const FULL = {
  _id: 'a',
  own: { deep: { kept: 1 } },
  state: 'Running',
  phase: PHASE,
  lockedAt: ago(LOCK_TIMEOUT_MS + 10),
  fence: 41,
  createdAt: new Date(1_000),
  updatedAt: new Date(2_000),
  progress: {
    step: 's1',
    since: new Date(3_000),
    at: new Date(4_000),
    attempts: 2,
    claims: 1,
    endedBy: 'before~1#1.1',
    resumeAt: new Date(5_000),
    waitingFor: 'a thing',
    waitingSince: new Date(6_000),
    error: { name: 'Error', message: 'old' },
    history: [],
    theirs: 7,
  },
}

interface Outcome {
  readonly before: Document
  readonly after: Document
  readonly token: string
  readonly nextToken: string
  /** The server's time of the write: that of its history entry. */
  readonly now: Date
}

describe('which write sets what', () => {
  const database = useDatabase()

  async function ended(end: EndKind, more: Partial<StepEnd> = {}, document: Document = FULL): Promise<Outcome> {
    const collection = await lockedCollection(database.db)
    await put(collection, document)
    const { document: before, lease } = await claimed(collection)
    const { token } = lease
    const verdicts = await writer(collection).write([endOf(lease, end, more)])
    expect([...verdicts.values()]).toEqual([{ kind: 'recorded' }])
    const after = await read(collection, 'a')
    return { before, after, token, nextToken: lease.token, now: after['progress'].history.at(-1).at }
  }

  /** The fields that the write changed, added (value) or removed (undefined); `progress.x` for those inside. */
  function changes({ before, after }: Outcome): Document {
    const flat = ({ progress, ...rest }: Document): Document => ({
      ...rest,
      ...Object.fromEntries(Object.entries(progress ?? {}).map(([key, value]) => [`progress.${key}`, value])),
    })
    const [was, is] = [flat(before), flat(after)]
    const names = new Set([...Object.keys(was), ...Object.keys(is)])
    const changed = [...names].filter((name) => JSON.stringify(was[name]) !== JSON.stringify(is[name]))
    return Object.fromEntries(changed.filter((name) => name !== 'progress.history').map((name) => [name, is[name]]))
  }

  const at = (now: Date, ms: number) => new Date(now.getTime() + ms - LOCK_TIMEOUT_MS)
  const entry = (outcome: Outcome) => outcome.after['progress'].history.at(-1)

  test('again: lockedBy, fence, at, step, claims 1, attempts 0; lockedAt and updatedAt stay', async () => {
    const stale = ['waitingFor', 'waitingSince', 'resumeAt', 'error']
    const outcome = await ended(again('s2'), { stale })
    expect(changes(outcome)).toEqual({
      lockedBy: outcome.nextToken,
      fence: outcome.before['fence'] + 1,
      'progress.at': outcome.now,
      'progress.step': 's2',
      'progress.claims': 1,
      'progress.attempts': 0,
      'progress.waitingFor': undefined,
      'progress.waitingSince': undefined,
      'progress.resumeAt': undefined,
      'progress.error': undefined,
    })
    expect(outcome.nextToken).not.toBe(outcome.token)
    expect(entry(outcome)).toEqual({
      at: outcome.now,
      from: PHASE,
      to: PHASE,
      step: null,
      outcome: 'again',
      reason: null,
      by: outcome.token,
      ms: 5,
      count: 1,
    })
  })

  test('again that yields: really unlocks, with endedBy and claims 0', async () => {
    const outcome = await ended(unlock)
    expect(changes(outcome)).toEqual({
      lockedAt: TASK_LOCK_INIT_TIME,
      lockedBy: undefined,
      updatedAt: outcome.now,
      'progress.at': outcome.now,
      'progress.endedBy': outcome.token,
      'progress.claims': 0,
      'progress.attempts': 0,
    })
  })

  test('wait: lockedAt, resumeAt, waitingFor, endedBy, claims 0, attempts 0; lockedBy goes, waitingSince stays', async () => {
    const outcome = await ended(wait(2_000), { stale: ['error'] })
    expect(changes(outcome)).toEqual({
      lockedAt: at(outcome.now, 2_000),
      lockedBy: undefined,
      'progress.resumeAt': new Date(outcome.now.getTime() + 2_000),
      'progress.waitingFor': 'not ready',
      'progress.endedBy': outcome.token,
      'progress.claims': 0,
      'progress.attempts': 0,
      'progress.error': undefined,
    })
  })

  test('the first wait sets waitingSince; none of updatedAt, at and since moves, or the back-off would never grow', async () => {
    const { waitingSince, ...progress } = FULL.progress
    const outcome = await ended(wait(), {}, { ...FULL, progress })
    expect(changes(outcome)).toMatchObject({ 'progress.waitingSince': outcome.now })
    for (const name of ['updatedAt', 'progress.at', 'progress.since']) expect(changes(outcome)).not.toHaveProperty(name)
  })

  test('wait sleeps at least 100 ms, by its back-off, and never past the deadline', async () => {
    const soon = await ended(wait(0))
    expect(soon.after['lockedAt']).toEqual(at(soon.now, 100))
    const wakeBy = new Date(soon.now.getTime() + 40_000)
    const capped = await ended(wait(60_000), { wakeBy })
    expect(capped.after['progress'].resumeAt).toEqual(wakeBy)
    expect(capped.after['lockedAt']).toEqual(at(wakeBy, 0))
    const long = await ended(wait())
    expect(long.after['lockedAt']).toEqual(at(long.now, LOCK_TIMEOUT_MS))
  })

  const asks = { question: 'Ship $it?', options: ['$yes'], to: [], onTimeout: null } as const

  test('ask: lockedAt, resumeAt, question, endedBy, claims 0, attempts 0; lockedBy goes; the deadline is no later than wakeBy', async () => {
    const outcome = await ended({ kind: 'ask', step: null, question: asks, forMs: 60_000, times: 1 })
    const deadline = new Date(outcome.now.getTime() + 60_000)
    const { token } = outcome
    const { question } = outcome.after['progress']
    expect(question).toEqual({ ...asks, id: token, by: token, askedAt: outcome.now, deadline, times: 1 })
    expect(changes(outcome)).toMatchObject({ lockedAt: at(deadline, 0), lockedBy: undefined })
    expect(outcome.after['progress']).toMatchObject({ resumeAt: deadline, endedBy: token, claims: 0, attempts: 0 })
    const wakeBy = new Date(outcome.now.getTime() + 40_000)
    const capped = await ended({ kind: 'ask', step: null, question: asks, forMs: null, times: 1 }, { wakeBy })
    expect(capped.after['progress']).toMatchObject({ resumeAt: wakeBy, question: { deadline: wakeBy } })
    const endless = await ended({ kind: 'ask', step: null, question: asks, forMs: null, times: 1 })
    expect(endless.after['lockedAt']).toEqual(at(ASKS_FOREVER, 0))
    const keeps = await ended(
      { kind: 'ask', step: null, question: asks, forMs: 5, times: 1, keeps: true },
      {},
      { ...FULL, progress: { ...FULL.progress, question: { ...question, options: ['yes'] } } },
    )
    expect(keeps.after['progress'].question).toEqual({ ...question, options: ['yes'] })
    expect(keeps.after['lockedAt']).toEqual(at(deadline, 0))
  })

  test('unavailable: like wait, but attempts stay', async () => {
    const outcome = await ended({ kind: 'unavailable', step: null, reason: 'cluster down', forMs: 5_000 })
    expect(changes(outcome)).toEqual({
      lockedAt: at(outcome.now, 5_000),
      lockedBy: undefined,
      'progress.resumeAt': new Date(outcome.now.getTime() + 5_000),
      'progress.waitingFor': 'cluster down',
      'progress.endedBy': outcome.token,
      'progress.claims': 0,
    })
  })

  const leftBehind = {
    'progress.waitingFor': undefined,
    'progress.waitingSince': undefined,
    'progress.resumeAt': undefined,
    'progress.error': undefined,
    'progress.step': undefined,
    'progress.claims': 0,
    'progress.attempts': 0,
  }

  test('move: phase, lockedAt, updatedAt, since, endedBy; what belongs to the old phase goes', async () => {
    const outcome = await ended(moveTo('Next'))
    expect(changes(outcome)).toEqual({
      phase: 'Next',
      lockedAt: TASK_LOCK_INIT_TIME,
      lockedBy: undefined,
      updatedAt: outcome.now,
      'progress.since': outcome.now,
      'progress.endedBy': outcome.token,
      ...leftBehind,
    })
    expect(entry(outcome)).toMatchObject({ from: PHASE, to: 'Next', outcome: 'moveTo' })
  })

  test('move to a phase that rests until its deadline, or is kept: sleeps until then', async () => {
    const outcome = await ended({ ...moveTo('Next'), forMs: 90_000 } as EndKind)
    const resumeAt = new Date(outcome.now.getTime() + 90_000)
    expect(changes(outcome)).toMatchObject({ lockedAt: at(resumeAt, 0), 'progress.resumeAt': resumeAt })
  })

  const deadline = (setState?: { ifState: unknown; state: string }): EndKind => ({
    ...(moveTo('Next') as Extract<EndKind, { kind: 'moveTo' }>),
    by: 'deadline',
    reason: 'too long',
    setState,
  })

  test('deadline: as move, and the state it compensates with, only where the owner still wants what was seen', async () => {
    const outcome = await ended(deadline({ ifState: 'Running', state: 'Stopped' }))
    expect(changes(outcome)).toEqual({
      phase: 'Next',
      state: 'Stopped',
      lockedAt: TASK_LOCK_INIT_TIME,
      lockedBy: undefined,
      updatedAt: outcome.now,
      'progress.since': outcome.now,
      'progress.endedBy': outcome.token,
      ...leftBehind,
    })
    expect(entry(outcome)).toMatchObject({ outcome: 'deadline', reason: 'too long' })
    expect(changes(await ended(deadline({ ifState: 'Other', state: 'Stopped' })))).not.toHaveProperty('state')
  })

  test('deadline: a document whose owner never said a state is compensated too', async () => {
    const { state, ...stateless } = FULL
    const outcome = await ended(deadline({ ifState: null, state: 'Stopped' }), {}, stateless)
    expect(outcome.after['state']).toBe('Stopped')
    const unchanged = await ended(deadline(), {}, { ...stateless, _id: 'a' })
    expect(unchanged.after).not.toHaveProperty('state')
  })

  test('park: lockedAt 9999-12-31, error, endedBy, claims 0; lockedBy goes', async () => {
    const outcome = await ended(park)
    expect(changes(outcome)).toEqual({
      lockedAt: PARKED_AT,
      lockedBy: undefined,
      'progress.error': { name: 'Parked', message: 'needs a person' },
      'progress.endedBy': outcome.token,
      'progress.claims': 0,
    })
  })

  test('thrown error: lockedAt, attempts + 1, error, resumeAt, endedBy, claims 0; lockedBy goes', async () => {
    const outcome = await ended(failed, { pauseMs: 4_000 })
    expect(changes(outcome)).toEqual({
      lockedAt: at(outcome.now, 4_000),
      lockedBy: undefined,
      'progress.attempts': 3,
      'progress.error': { name: 'Error', message: 'it broke' },
      'progress.resumeAt': new Date(outcome.now.getTime() + 4_000),
      'progress.endedBy': outcome.token,
      'progress.claims': 0,
    })
  })

  test('unlock of what was not begun: lockedAt epoch, claims - 1, endedBy; lockedBy goes; attempts and step stay', async () => {
    const outcome = await ended(released)
    expect(outcome.before['progress'].claims).toBe(2)
    expect(changes(outcome)).toEqual({
      lockedAt: TASK_LOCK_INIT_TIME,
      lockedBy: undefined,
      'progress.endedBy': outcome.token,
      'progress.claims': 1,
    })
  })

  test("checkpoint: the token, progress.at and the owner's fields, nothing else", async () => {
    const outcome = await ended(checkpoint, { set: { own: { other: 2 }, url: '$name' } })
    expect(changes(outcome)).toEqual({
      lockedBy: outcome.nextToken,
      own: { other: 2 },
      url: '$name',
      'progress.at': outcome.now,
    })
  })

  test("sleep until the deadline: lockedAt and resumeAt are the deadline's", async () => {
    const wakeBy = new Date('2099-01-01')
    const outcome = await ended({ kind: 'sleepUntilDeadline', step: null }, { wakeBy })
    expect(changes(outcome)).toMatchObject({
      lockedAt: at(wakeBy, 0),
      lockedBy: undefined,
      'progress.resumeAt': wakeBy,
    })
  })

  const RULE: StateRule = { when: 'Deleted', from: [PHASE], moveTo: 'Deleting' }

  test('rule: as move, by "rule", but endedBy stays for the holder that reads back', async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { ...FULL, state: 'Deleted' })
    const before = await read(collection, 'a')
    await collection.updateMany(...ruleUpdate(TERMS, RULE, ['a']))
    const after = await read(collection, 'a')
    const outcome = { before, after, token: '', nextToken: '', now: after['progress'].history.at(-1).at }
    expect(changes(outcome)).toEqual({
      phase: 'Deleting',
      lockedAt: TASK_LOCK_INIT_TIME,
      updatedAt: outcome.now,
      'progress.since': outcome.now,
      ...leftBehind,
    })
    expect(entry(outcome)).toMatchObject({ outcome: 'rule', by: 'rule', from: PHASE, to: 'Deleting' })
  })

  test('renewal: lockedAt alone, and no history', async () => {
    const collection: Collection = await lockedCollection(database.db)
    await put(collection, { ...FULL, lockedAt: ago(10_000), lockedBy: 'x#1.1' })
    const before = await read(collection, 'a')
    await collection.updateMany({ _id: 'a' as never }, renewUpdate(TERMS))
    const after = await read(collection, 'a')
    expect({ ...after, lockedAt: null }).toEqual({ ...before, lockedAt: null })
    expect(after['lockedAt'].getTime()).toBeGreaterThan(before['lockedAt'].getTime() + 9_000)
  })

  test("every end stores the owner's fields as they are: expressions, nested objects, dates and nulls", async () => {
    const set = { own: { c: 1 }, text: '$own', now: '$$NOW', nothing: null, list: [{ $x: 1 }], when: new Date(9) }
    for (const end of [again(), unlock, wait(), moveTo('Next'), park]) {
      const { after } = await ended(end, { set })
      expect(after).toMatchObject({ ...set, own: { c: 1 } })
      expect(after['own']).toEqual({ c: 1 })
      await database.db.collection('Thing').deleteMany({})
    }
  })
})
