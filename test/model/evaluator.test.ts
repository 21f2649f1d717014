import { isDeepStrictEqual } from 'node:util'
import { expect, test } from '@jest/globals'
import { type Document, Long, MaxKey, Timestamp } from 'mongodb'
import { ClaimWriter } from '../../src/lock/claim/claim-writer.js'
import { Claimant, ClaimTokens, Lease, PARKED_AT, Renewals, type Terms, termsOf } from '../../src/lock/index.js'
import { systemClock } from '../../src/time/index.js'
import { again, checkpoint, endOf, failed, moveTo, park, released, unlock, wait, writer } from '../lock/fixture.js'
import { useDatabase } from '../support/database.js'
import { randomNumbers } from '../support/random.js'
import { captured, type Write } from './captured.js'
import { COMMANDS, ID, recoveryOf, removalOf, uncountOf } from './commands.js'
import { EvaluationError } from './evaluator/expression.js'
import { matches } from './evaluator/filter.js'
import type { Fields } from './evaluator/order.js'
import { updated } from './evaluator/update.js'

/*
 * The models interpret the very filters and updates that the product sends. Here the interpreter is compared with the real
 * engine: each of them on documents of all shapes that the protocol knows, and of many that it doesn't.
 */
const SEED = Number(process.env['SEED'] ?? 20260101)
const DOCUMENTS = 200
const NOW = new Date('2026-05-05T12:00:00Z')
const T = 30_000
const TOKEN = 'a~1#1.1'
const database = useDatabase()
const before = (ms: number) => new Date(NOW.getTime() - ms)

const random = randomNumbers(SEED)
const oneOf = <V>(values: readonly V[]): V => values[Math.floor(random() * values.length)]!
/** One of the values, or, of ten times, once something odd, and as often nothing at all. */
const field = (name: string, values: readonly unknown[]): Document => {
  const draw = random()
  return draw < 0.1 ? {} : { [name]: draw < 0.2 ? oneOf(ODD) : oneOf(values) }
}
const ODD = [null, 'text', '12', 3, -1, 1.5, Number.NaN, true, [], [before(0)], [3, 'a'], {}, { a: 1 }, new Date(9e15)]
const TIMES = [0, 1, T - 1, T, T + 1, 100, 40_000, -100, -T].map(before)
const LATE = [new MaxKey(), new Timestamp({ t: 1, i: 1 }), /a/]
const TOKENS = [TOKEN, TOKEN, 'a~1#1.2', 'a~1#10.1', 'a~1#2.1', 'b~1#1.1', 'a~1', 'zz']
const HISTORY = {
  at: before(1),
  from: 'Working',
  to: 'Working',
  step: null,
  outcome: 'wait',
  reason: 'not ready',
  ms: 1,
}

function randomProgress(): Document {
  const lockedAt = oneOf(TIMES)
  return {
    ...field('since', [...TIMES, before(3_600_000)]),
    ...field('at', TIMES),
    ...field('attempts', [0, 1, 5]),
    ...field('claims', [0, 1, 2]),
    ...field('endedBy', TOKENS),
    ...field('lockedAt', TIMES),
    ...field('resumeAt', [...TIMES, new Date(lockedAt.getTime() + T)]),
    ...field('waitingSince', TIMES),
    ...field('step', ['first']),
    ...field('history', [[], [HISTORY], [{ ...HISTORY, count: 2 }], Array.from({ length: 22 }, () => HISTORY)]),
  }
}

function randomDocument(): Document {
  if (random() < 0.1) return { phase: 'Working', ...field('lockedAt', [new Date(0)]), ...field('createdAt', TIMES) }
  if (random() < 0.1) return { phase: 'Gone', ...field('lockedAt', TIMES), progress: { since: before(40_000) } }
  const progress = field('progress', [randomProgress(), randomProgress(), {}])
  const document: Document = {
    name: '$name',
    ...field('phase', ['Working', 'Working', 'Created', 'Gone']),
    ...field('state', ['Running', 'Deleted']),
    ...field('lockedAt', random() < 0.1 ? LATE : [new Date(0), PARKED_AT, ...TIMES]),
    ...field('lockedBy', TOKENS),
    ...field('fence', [NOW.getTime() * 1000 - 5, NOW.getTime() * 1000 + 5, Long.fromNumber(7), 2 ** 60]),
    ...field('updatedAt', TIMES),
    ...field('createdAt', TIMES),
    ...progress,
  }
  // Often enough all that a write under the token requires is there.
  if (random() < 0.4) {
    Object.assign(document, { phase: 'Working', lockedBy: TOKEN, progress: randomProgress() })
    if (random() < 0.5) document['lockedAt'] = document['progress'].lockedAt ?? oneOf(TIMES)
  }
  return document
}

async function commandsOf(terms: Terms): Promise<[string, Write][]> {
  const ends: [string, Write][] = (
    [
      ['again', again(), { nextToken: 'a~1#1.2' }],
      ['checkpoint', checkpoint, { nextToken: 'a~1#1.2', set: { n: { m: 1 }, name: '$state' } }],
      ['unlock', unlock, { stale: ['resumeAt', 'waitingFor'] }],
      ['wait', wait(), { stale: ['error'] }],
      ['wait for', wait(5_000), { wakeBy: before(-3_000) }],
      ['move', moveTo('Created'), { stale: ['step'] }],
      ['park', park, {}],
      ['error', failed, { pauseMs: 1_000, wakeBy: null }],
      ['released', released, {}],
      ['deadline', { kind: 'sleepUntilDeadline', step: null }, { wakeBy: before(-60_000) }],
      ['put aside', { kind: 'quarantine', step: null, reason: 'large' }, {}],
      ['compensated', { ...moveTo('Created'), setState: { ifState: null, state: 'Stopped' }, forMs: 9 }, {}],
    ] as const
  ).map(([name, kind, more]) => [
    name,
    COMMANDS.end(terms, { kind: kind as never, token: TOKEN, nextToken: null, ...more }),
  ])
  const rule = { when: 'Deleted', from: ['Working', 'Created'], moveTo: 'Deleting', setState: 'Going' }
  const [deletion, arming] = await removalOf(terms, 'Gone', 5_000)
  return [
    ['claim', COMMANDS.claim(terms, 'Working', 'b~1#7.1')],
    ['first claim', COMMANDS.firstClaim(terms, 'Working', 'b~1#7.1')],
    ...ends,
    ['renewal', COMMANDS.renew(terms, 'a~1', 1)],
    ['rule', COMMANDS.rule(terms, rule)],
    ['rename', COMMANDS.rename(terms, 'Working', 'Doing')],
    ['removal', deletion!],
    ['arming', arming!],
    ['uncount', await uncountOf(terms, TOKEN)],
    ['recovery', await recoveryOf(terms, ['Working'], 'a~1', NOW)],
  ]
}

/** The same for the documents of this test, at a moment of the test's own. */
const fixed = (value: unknown): unknown => {
  if (value === '$$NOW') return NOW
  if (Array.isArray(value)) return value.map(fixed)
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, fixed(one)]))
}

const REFUSED = Symbol('refused')

/** What the interpreter makes of a document: as it is then, `null` where it is deleted, or that the server refuses. */
function interpreted({ filter, update }: Write, document: Fields): unknown {
  if (!matches(filter, document, NOW)) return document
  try {
    return update ? updated(update, document, NOW) : null
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error
    return REFUSED
  }
}

test.each<[string, Terms]>([
  ['plain', termsOf(T)],
  ['beside legacy writers', termsOf(T, { legacyWriters: true })],
  ['with an age', termsOf(T, { validUntil: before(-5_000) })],
  ['too old', termsOf(T, { validUntil: before(1) })],
])('the interpreter does what the engine does, terms: %s', async (_name, terms) => {
  const collection = database.db.collection('Thing')
  const documents = Array.from({ length: DOCUMENTS }, randomDocument)
  const commands = await commandsOf(terms)
  await collection.insertMany(commands.flatMap(([command]) => documents.map((document) => ({ ...document, command }))))
  const stored = await collection.find().toArray()
  await collection.createIndex({ command: 1 })
  const changes = new Map<string, number>()
  for (const [command, write] of commands) {
    const condition = { ...withoutId(write.filter), command }
    const expected = new Map<string, unknown>()
    const refused: Document[] = []
    for (const document of stored.filter((one) => one['command'] === command)) {
      const result = interpreted({ ...write, filter: condition }, document)
      if (result === REFUSED) refused.push(document)
      else expected.set(String(document._id), result)
      if (result !== document) changes.set(command, (changes.get(command) ?? 0) + 1)
    }
    const filter = fixed(condition) as Document
    const others = { ...filter, _id: { $nin: refused.map(({ _id }) => _id) } }
    if (!write.update) await collection.deleteMany(others)
    else await collection.updateMany(others, fixed(write.update) as Document[])
    for (const { _id } of refused.slice(0, 10)) {
      await expect(collection.updateMany({ ...filter, _id }, fixed(write.update) as Document[])).rejects.toThrow()
    }
    const found = await collection.find({ command, _id: { $nin: refused.map(({ _id }) => _id) } }).toArray()
    const actual = new Map<string, unknown>(found.map((document) => [String(document._id), document]))
    for (const [id, result] of expected) {
      if (isDeepStrictEqual(actual.get(id) ?? null, result)) continue
      const document = stored.find(({ _id }) => String(_id) === id)
      const told = { seed: SEED, command, document }
      expect({ ...told, is: actual.get(id) ?? null }).toEqual({ ...told, is: result })
    }
  }
  // Each of them had something to do, and those that go by an age did nothing after it.
  const judged = ['claim', 'first claim', 'renewal', 'removal', 'arming']
  const idle = commands.map(([name]) => name).filter((name) => !changes.has(name))
  expect(idle).toEqual(terms.validUntil && terms.validUntil < NOW ? judged : [])
})

test.each([[false], [true]])(
  'the writes of the models are those that the product sends, legacyWriters: %s',
  async (legacyWriters) => {
    const terms = termsOf(T, { legacyWriters, validUntil: before(-5_000) })
    const claim = new ClaimTokens('a~1', 1)
    const lease = new Lease(ID, claim, claim.token, 5, 0, T, systemClock)
    const [renewal] = await captured((collection) => new Renewals(collection, () => terms, systemClock).renew([lease]))
    expect(renewal).toEqual(COMMANDS.renew(terms, 'a~1', 1))
    const [end] = await captured((collection) => writer(collection, { terms: () => terms }).write([endOf(lease, park)]))
    const { filter, update } = COMMANDS.end(terms, { kind: park, token: TOKEN, nextToken: null })
    expect(end).toEqual({ filter: { ...filter, _id: { $in: [ID] } }, update })
    const commands = { together: [{ ids: [ID], areNew: false }], apart: [] }
    const [won] = await captured(async (collection) => {
      const claims = new ClaimWriter({ collection, claimant: new Claimant('a~1'), clock: systemClock })
      await claims.claim(terms, 'Working', commands, () => undefined)
    })
    const token: string = (won!.update as Document[])[0]!['$set'].lockedBy.$cond[1].$literal
    expect(won).toEqual(COMMANDS.claim(terms, 'Working', token))
  },
)

/** A document of a test stands for the one that the command names. */
function withoutId({ _id, $and, $or, ...others }: Document): Document {
  const only = $or?.length === 1 ? withoutId($or[0]) : {}
  const all = $and ? { $and: $and.map(withoutId) } : {}
  return { ...others, ...only, ...all, ...($or?.length > 1 ? { $or } : {}) }
}
