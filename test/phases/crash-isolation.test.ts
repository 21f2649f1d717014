import { describe, expect, test } from '@jest/globals'
import { CrashIsolation } from '../../src/phases/engine/claim/crash-isolation.js'
import { ManualClock } from '../lock/fixture.js'

const settings = { progress: 'progress', concurrency: 16, maxClaims: 5 } as never

/** A replica that holds documents on these claims without a recorded outcome, each for `heldMs`. */
function replicaWith(claims: readonly number[], heldMs = 10_000) {
  const clock = new ManualClock()
  const isolation = new CrashIsolation(clock)
  const holding = claims.map((count) => ({
    document: { progress: { claims: count } },
    claimedAtMs: clock.monotonicMs() - heldMs,
  }))
  let called = 0
  const held = () => holding.map(({ document, claimedAtMs }) => ({ claims: document.progress.claims, claimedAtMs }))
  isolation.join(held, settings, () => {
    called += 1
  })
  const claim = () => {
    const admission = isolation.forClaim(settings, 0)
    admission.choose({} as never, { lists: [], retries: [] } as never)
    return admission
  }
  /** Whether a document may be claimed that was claimed so often before. */
  const admits = (before: number) => {
    const admission = claim()
    const isAdmitted = admission.admits({ progress: { claims: before } })
    isolation.over(admission)
    return isAdmitted
  }
  /** Claims it: it is held from then on. */
  const take = (before: number) => {
    const admission = claim()
    const document = { progress: { claims: before } }
    if (!admission.admits(document)) return false
    admission.placed(document)
    holding.push({ document: { progress: { claims: before + 1 } }, claimedAtMs: clock.monotonicMs() })
    isolation.over(admission)
    return true
  }
  const letGo = () => {
    holding.pop()
    isolation.released()
  }
  return { clock, isolation, admits, take, letGo, calls: () => called }
}

/** By what is held: whether a document may be claimed for the 1st, 2nd, 3rd, 4th, 5th (its last) and 6th time (then it is parked without a call). */
test.each([
  ['nothing', [], 'yes yes yes yes yes yes'],
  ['what no one suspects', [1, 1, 1], 'yes yes yes yes no yes'],
  ['three on their 2nd claim', [2, 2, 2], 'yes yes yes no no yes'],
  ['four on their 2nd claim', [2, 2, 2, 2], 'yes yes no no no yes'],
  ['as many on their 2nd claim as run at once', Array(16).fill(2), 'yes no no no no yes'],
  ['one on its 3rd claim', [3], 'yes yes yes no no yes'],
  ['four on their 3rd claim', [3, 3, 3, 3], 'yes no no no no yes'],
  ['one on its 4th claim', [4], 'yes no no no no yes'],
  ['one past its last claim', [6], 'yes yes yes yes no yes'],
])('beside %s', (_what, held, expected) => {
  const answers = [0, 1, 2, 3, 4, 5].map((before) => (replicaWith(held).admits(before) ? 'yes' : 'no'))
  expect(answers.join(' ')).toBe(expected)
})

test.each([
  ['on its 2nd try', [2], 'yes yes yes no'],
  ['on its 3rd try', [3, 3], 'yes yes yes no'],
  ['on its last try', [8], 'yes no no no'],
])('beside a callback %s: whether a step may begin on its 1st, 2nd, 3rd and last claim', (_what, calls, expected) => {
  const { isolation, admits } = replicaWith([], 10_000)
  const outboxes = { progress: 'progress', concurrency: 16, maxClaims: 8 }
  isolation.join(() => calls.map((claims) => ({ claims, claimedAtMs: -10_000 })), outboxes)
  expect([0, 1, 2, 4].map((before) => (admits(before) ? 'yes' : 'no')).join(' ')).toBe(expected)
})

/** By the steps that are held, and for how long: whether a callback may be called for the 2nd, 3rd and 8th time (its last). */
test.each([
  ['as many long steps on their 2nd claim as run at once', Array(16).fill(2), 10_000, [true, true, false]],
  ['as many steps that have just begun', Array(16).fill(2), 1_000, [false, false, false]],
  ['a long step on the claim before its last', [4], 10_000, [true, true, false]],
  ['a long step on its last claim, which a crash would park', [5], 10_000, [false, false, false]],
])('a callback beside %s', (_what, steps, heldMs, expected) => {
  const { isolation } = replicaWith(steps, heldMs)
  const outboxes = { progress: 'progress', concurrency: 16, maxClaims: 8 }
  isolation.join(() => [], outboxes)
  const takes = (tries: number) => {
    const admission = isolation.forClaim(outboxes, 0)
    const isAdmitted = admission.takes(tries)
    isolation.over(admission)
    return isAdmitted
  }
  expect([2, 3, 8].map(takes)).toEqual(expected)
})

test('a callback on its last try is alone as a step is: it waits for steps, and none begins beside it', () => {
  const { clock, isolation, admits, letGo } = replicaWith([1])
  const outboxes = { progress: 'progress', concurrency: 16, maxClaims: 8 }
  const inProgress: { claims: number; claimedAtMs: number }[] = []
  isolation.join(() => inProgress, outboxes)
  const call = () => {
    const admission = isolation.forClaim(outboxes, 0)
    const isAdmitted = admission.takes(8)
    if (isAdmitted) inProgress.push({ claims: 8, claimedAtMs: clock.monotonicMs() })
    isolation.over(admission)
    return isAdmitted
  }
  expect(call()).toBe(false)
  letGo()
  expect(call()).toBe(true)
  expect([admits(0), isolation.isOpen]).toEqual([false, false])
  clock.advance(1_501)
  expect([admits(0), isolation.isOpen]).toEqual([true, true])
})

describe('a document on its last claim', () => {
  test('is alone for 1.5 s; then others may come beside it, but no suspect', () => {
    const { clock, admits, take } = replicaWith([])
    expect(take(4)).toBe(true)
    expect([0, 1].map(admits)).toEqual([false, false])
    clock.advance(1_501)
    expect([0, 1, 4].map(admits)).toEqual([true, false, false])
  })

  test('gets its turn after 5 s beside others: nothing more is claimed, and a second later it begins beside what still runs', () => {
    const { clock, isolation, admits, take } = replicaWith([1, 1])
    expect(take(4)).toBe(false)
    for (let waited = 0; waited < 5_000; waited += 1_000) {
      clock.advance(1_000)
      expect(take(4)).toBe(false)
    }
    clock.advance(100)
    expect(isolation.closedMs).toBeGreaterThan(0)
    expect(admits(0)).toBe(false)
    expect(take(4)).toBe(false)
    clock.advance(1_000)
    expect(take(4)).toBe(true)
  })

  test('waits for another suspect for 2.5 s with the door shut; then the others go on', () => {
    const { clock, isolation, admits, take } = replicaWith([2])
    take(4)
    for (let waited = 0; waited < 7_500; waited += 500) {
      clock.advance(500)
      expect(take(4)).toBe(false)
    }
    expect(isolation.closedMs).toBe(0)
    expect(admits(0)).toBe(true)
  })

  test('keeps the others out for no more than half of the time', () => {
    const { clock, isolation, take, letGo } = replicaWith([])
    expect(take(4)).toBe(true)
    clock.advance(1_000)
    letGo()
    expect(isolation.againInMs).toBe(1_000)
    expect(take(4)).toBe(false)
    clock.advance(1_000)
    expect(take(4)).toBe(true)
  })

  test('that another replica has taken is no longer waited for', () => {
    const { clock, isolation, take } = replicaWith([1])
    take(4)
    clock.advance(6_000)
    expect(isolation.closedMs).toBe(0)
  })
})

test('what was left is called for once, when there may be room for it', () => {
  const { isolation, letGo, calls } = replicaWith([4, 1])
  letGo()
  expect(calls()).toBe(0)
  isolation.isWaitedFor = true
  letGo()
  expect(calls()).toBe(1)
  isolation.released()
  expect(calls()).toBe(1)
})

test('makes way once a second', () => {
  const { clock, isolation } = replicaWith([])
  expect([isolation.makesWay(), isolation.makesWay()]).toEqual([true, false])
  clock.advance(1_000)
  expect(isolation.makesWay()).toBe(true)
})
