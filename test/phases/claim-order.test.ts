import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { byKind } from '../../src/lock/candidates/candidates.js'
import { byTurns, FAIR, FAIR_BESIDE_RANKS, RANKS as PARTS, UNRANKED } from '../../src/lock/candidates/order.js'
import { idKey, PhaseMemory, RefusingDocuments, WorkSplit } from '../../src/lock/index.js'
import {
  type CandidateList,
  choose,
  type Extent,
  extentFor,
  type SelectionPolicy,
} from '../../src/lock/select/selection.js'
import { Admission } from '../../src/phases/engine/claim/admission.js'
import { CrashIsolation } from '../../src/phases/engine/claim/crash-isolation.js'
import { PhaseQueue } from '../../src/phases/engine/claim/phase-queue.js'
import { ManualClock, memoryFor, PHASE } from '../lock/fixture.js'
import { randomNumbers } from '../support/random.js'
import { type Due, KINDS, mayHold, RANKS, violations, type World } from './claim-order-model.js'

const FEATURES = ['ranks', 'turns', 'limits', 'keys', 'rates', 'pauses', 'suspects', 'deadlines', 'work split'] as const
type Feature = (typeof FEATURES)[number]
const PAIRS = FEATURES.flatMap((one, i) => FEATURES.slice(i + 1).map((other) => [one, other] as const))
const CASES = Math.ceil(10_000 / PAIRS.length)

const TENANTS = ['a', 'b', 'c', 'd']
const REPLICAS = ['api-1~a', 'api-2~b']
const modelOf = (its: object) =>
  ({ name: 'thing', settings: its, phases: new Map([[PHASE, { name: PHASE, kind: 'working' }]]) }) as never
const settings = { progress: 'progress', maxClaims: 4, concurrency: 16, limitBy: 'tenant' }

/** A claim's policies in a world with two features, and what the model needs to know of it. */
function worldOf(features: readonly Feature[], random: () => number) {
  const has = (feature: Feature) => features.includes(feature)
  const upTo = (n: number) => Math.floor(random() * n)
  const oneOf = <T>(of: readonly T[]): T => of[upTo(of.length)]!
  const clock = new ManualClock()
  const split = new WorkSplit(() => ({ self: REPLICAS[0]!, replicas: REPLICAS }), clock)
  const refusing = new RefusingDocuments(clock)
  const keyed = has('keys') || has('rates')
  const room = 1 + upTo(12)
  const due: Due[] = Array.from({ length: 1 + upTo(18) }, (_, i) => {
    const _id = `${upTo(1_000)}-${i}`
    // What has reached its deadline is due as what has woken: it has a claim of its own, in its turn.
    const kind = has('deadlines') && random() < 0.5 ? 'woken' : oneOf(KINDS)
    return {
      _id,
      kind,
      rank: has('ranks') ? oneOf(RANKS) : 'normal',
      age: i,
      tenant: has('turns') || keyed ? oneOf(TENANTS) : 'a',
      claims: has('suspects') && kind === 'woken' ? upTo(6) : 0,
      isPaused: has('pauses') && random() < 0.2,
      isOthers: has('work split') && !split.isOwn(idKey(_id), PHASE) && random() < 0.5,
    }
  })
  if (has('work split'))
    for (const { _id, isOthers } of due)
      if (!isOthers && !split.isOwn(idKey(_id), PHASE)) split.waitedFor(memoryFor(split), idKey(_id))
  if (has('pauses')) refusing.leaveAlone(due.filter(({ isPaused }) => isPaused).map(({ _id }) => _id))
  /** What each tenant has: some of its slots are in use, its rate admits fewer, or people have paused it. */
  const free = new Map(
    TENANTS.map((tenant) => [tenant, has('pauses') && random() < 0.3 ? 0 : upTo(has('rates') ? 8 : 4)]),
  )
  const each = has('keys') ? 1 + upTo(3) : Number.POSITIVE_INFINITY
  const held = has('suspects') ? Array.from({ length: upTo(4) }, () => upTo(5)) : []
  const world: World = {
    places: has('limits') ? Math.min(room, 1 + upTo(6)) : room,
    due,
    each,
    full: new Set(),
    maxClaims: settings.maxClaims,
    concurrency: settings.concurrency,
    held,
    hasRanks: has('ranks'),
    hasTurns: has('turns') || keyed,
    byTurns: 0,
  }

  const isolation = new CrashIsolation(clock)
  const holding = held.map((claims) => ({ claims, claimedAtMs: clock.monotonicMs() - 10_000 }))
  isolation.join(() => holding, settings as never)
  const slots = {
    takeOf: async ({ limit }: { limit: string }, most: number) => {
      const count = Math.min(most, free.get(limit.split('=')[1]!)!)
      return { count, isAllHere: true }
    },
    againIn: () => ({ notBeforeMs: 0 }),
    onFree: () => undefined,
    release: () => undefined,
  }
  const model = modelOf({ ...settings, each: has('keys') ? each : { rate: {} } })
  const keys = keyed ? new Admission(model, slots as never, clock) : undefined
  return {
    world,
    keys,
    isolation,
    free,
    memory: memoryFor(split),
    policies: [refusing, has('work split') ? split : []].flat() as SelectionPolicy[],
  }
}

const asStored = ({ _id, tenant, rank, claims }: Due): Document => ({ _id, tenant, rank, progress: { claims } })

/** What a look finds of these documents; with a part by turns it doesn't see all of them. */
function found(
  { due, hasRanks, hasTurns, byTurns: fair, full }: World,
  { wanted, spare, passed }: Extent,
): readonly CandidateList[] {
  const limit = fair > 0 ? wanted + spare + passed : due.length
  const read = (isIn: (one: Due) => boolean, group?: { least: number }) => {
    const [woken, released, fresh] = KINDS.map((kind) =>
      due
        .filter((one) => one.kind === kind && isIn(one))
        .slice(0, limit)
        .map(asStored),
    )
    return byKind(fresh!, released!, woken!, group)
  }
  const part = (rank: (typeof RANKS)[number]) => ({ least: rank === 'odd' ? UNRANKED : PARTS[rank] })
  const lists = hasRanks ? RANKS.flatMap((rank) => read((one) => one.rank === rank, part(rank))) : read(() => true)
  if (!hasTurns) return lists
  const each = Math.ceil(limit / TENANTS.length)
  const inTurn = TENANTS.filter((tenant) => !full.has(tenant))
  const oldest = inTurn.flatMap((tenant) =>
    due
      .filter((one) => one.tenant === tenant)
      .slice(0, each)
      .map(asStored),
  )
  return byTurns(lists, fair > 0 ? oldest : [], 'tenant', fair)
}

/** One claim: which documents it tries for, of those that have got a place. */
async function claim(
  { keys, isolation, policies, memory = new PhaseMemory(PHASE) }: ReturnType<typeof worldOf>,
  world: World,
  random: () => number,
) {
  const byId = new Map(world.due.map((one) => [one._id, one]))
  const isolated = isolation.forClaim(settings as never, 0)
  const keyed = keys?.forClaim(new PhaseQueue(PHASE))
  const all = [...policies, ...(keyed ? [keyed] : []), isolated]
  const extent = extentFor(all, memory, world.places)
  const lists = found(world, extent)
  const { documents } = choose(all, memory, lists, extent, random)
  const admitted = keyed ? await keyed.admit(documents) : documents
  isolation.over(isolated)
  const dues = (some: readonly Document[]) => some.map(({ _id }) => byId.get(_id as string)!)
  const seen = new Set(lists.flatMap((list) => list.documents.map(({ _id }) => byId.get(_id as string)!)))
  const placed = dues(documents)
  return { placed, admitted: dues(admitted), wrong: violations({ ...world, due: [...seen] }, placed) }
}

describe('the order of claims, of each pair of features against the model', () => {
  test.each(PAIRS)('%s beside %s', async (...pair) => {
    const random = randomNumbers(PAIRS.findIndex(([one, other]) => one === pair[0] && other === pair[1]))
    for (let i = 0; i < CASES; i += 1) {
      const its = worldOf(pair, random)
      const fair = its.world.hasRanks ? FAIR_BESIDE_RANKS : FAIR
      // Every other time the look doesn't see all that is due.
      const world = { ...its.world, byTurns: its.world.hasTurns && i % 2 === 1 ? fair : 0 }
      const first = await claim(its, world, random)
      const wrong = [...first.wrong]
      if (its.keys) {
        // Of each tenant those that were placed first have its slots.
        const ofTenant = (some: readonly Due[], tenant: string) => some.filter((one) => one.tenant === tenant)
        for (const tenant of TENANTS) {
          const admitted = ofTenant(first.admitted, tenant)
          const expected = ofTenant(first.placed, tenant).slice(0, its.free.get(tenant))
          if (admitted.some((one, k) => one !== expected[k])) wrong.push(`slots of ${tenant} went to others`)
        }
        // The next claim knows who has none, and gives others their places.
        const full = new Set(first.placed.map(({ tenant }) => tenant))
        wrong.push(...(await claim(its, { ...world, full }, random)).wrong)
      }
      if (wrong.length > 0) throw new Error(`case ${i}: ${wrong.join('; ')}\n${JSON.stringify({ world, first })}`)
    }
  })

  test('the model refuses what it should', () => {
    const [low, urgent] = ['low', 'urgent'].map((rank, age) => ({ ...ONE, _id: rank, rank: rank as 'low', age }))
    const world: World = { ...ALONE, due: [low!, low!, urgent!], hasRanks: true }
    expect(mayHold(world, [urgent!])).toBe(true)
    expect(violations({ ...world, places: 3, each: 1 }, [urgent!, urgent!])).toEqual(['may not be held together'])
    expect(violations(world, [])).toHaveLength(3)
  })
})

describe('the parts of the ranks', () => {
  test.each([1, 3, 16])('on average, of %i places, whether all of them can be had or one', async (places) => {
    const random = randomNumbers(places)
    const clock = new ManualClock()
    const counts = { odd: 0, low: 0, normal: 0, high: 0, urgent: 0 }
    const ofKey = { ...counts }
    const due = RANKS.flatMap((rank) =>
      Array.from({ length: places }, (_, age) => ({ ...ONE, _id: `${rank}${age}`, rank, age })),
    )
    const rounds = 1_000
    for (let i = 0; i < rounds; i += 1) {
      const its = { isolation: new CrashIsolation(clock), policies: [], keys: undefined } as never
      const world = { ...ALONE, due, places, hasRanks: true }
      for (const { rank } of (await claim(its, world, random)).placed) counts[rank] += 1
      const keys = new Admission(modelOf({ ...settings, each: 1 }), ONE_SLOT as never, clock)
      const keyed = { isolation: new CrashIsolation(clock), policies: [], keys } as never
      for (const { rank } of (await claim(keyed, { ...world, hasTurns: true }, random)).placed) ofKey[rank] += 1
    }
    const parts = { odd: 1 / 16, low: 1 / 16, normal: 1 / 8, high: 1 / 4, urgent: 1 / 2 }
    for (const rank of RANKS) {
      expect(Math.abs(counts[rank] / rounds / places - parts[rank])).toBeLessThan(0.03)
      expect(Math.abs(ofKey[rank] / rounds - parts[rank])).toBeLessThan(0.03)
    }
  })
})

const ONE: Due = {
  _id: 'x',
  rank: 'normal',
  kind: 'fresh',
  age: 0,
  tenant: 'a',
  claims: 0,
  isPaused: false,
  isOthers: false,
}
const ALONE: World = {
  places: 1,
  due: [],
  each: Number.POSITIVE_INFINITY,
  full: new Set(),
  maxClaims: 10,
  concurrency: 16,
  held: [],
  hasRanks: false,
  hasTurns: false,
  byTurns: 0,
}
const ONE_SLOT = {
  takeOf: async () => ({ count: 1, isAllHere: true }),
  againIn: () => ({ notBeforeMs: 0 }),
  onFree: () => undefined,
}
