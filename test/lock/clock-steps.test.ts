import { describe, expect, test } from '@jest/globals'
import { ClockSteps } from '../../src/lock/index.js'
import { ManualClock } from './fixture.js'

const MINUTE = 60_000
const HOLD = MINUTE

/** A server whose clock a test moves, and a replica that asks it. */
function world(holdMs = HOLD) {
  const clock = new ManualClock()
  const found: number[] = []
  const steps = new ClockSteps(clock, holdMs, ({ ms }) => void found.push(ms))
  let aheadMs = 1_700_000_000_000
  const serverNow = () => new Date(clock.monotonicMs() + aheadMs)
  return {
    ...{ clock, found, steps, serverNow },
    step: (ms: number) => {
      aheadMs += ms
    },
    /** A look whose command takes so long to arrive, and its answer so long to come back. */
    look: (thereMs = 1, backMs = 1) => {
      const sentAtMs = clock.monotonicMs()
      clock.advance(thereMs)
      const now = serverNow()
      clock.advance(backMs)
      steps.saw(now, sentAtMs)
    },
  }
}

describe("steps of the server's clock", () => {
  test.each([10 * MINUTE, 2_500, -2_500, -10 * MINUTE])('one of %d ms is found by the next look, once', (ms) => {
    const { clock, found, step, look } = world()
    look()
    clock.advance(1_000)
    step(ms)
    for (let i = 0; i < 10; i++) look()
    expect(found).toHaveLength(1)
    expect(Math.abs(found[0]! - ms)).toBeLessThan(20)
  })

  test('none is found where there is none: slow answers, a slow clock, another member, a pause between looks', () => {
    const { clock, found, step, look } = world()
    for (let i = 0; i < 50; i++) {
      look(i % 3 === 0 ? 9_000 : 1, i % 7 === 0 ? 20_000 : 1)
      clock.advance(1_000)
    }
    for (let i = 0; i < 500; i++) {
      look()
      clock.advance(1_000)
      step(i < 250 ? 0.5 : -0.5)
    }
    for (const ms of [1_500, -1_500]) {
      step(ms)
      look()
    }
    clock.advance(3_600_000)
    step(3_000)
    look()
    expect(found).toEqual([])
  })

  test('an answer from before a step that comes after it is no step back', () => {
    const { clock, found, steps, step, look, serverNow } = world()
    look()
    clock.advance(1_000)
    const [late, sentAtMs] = [serverNow(), clock.monotonicMs()]
    clock.advance(10)
    step(10 * MINUTE)
    look()
    steps.saw(late, sentAtMs)
    look()
    expect(found).toHaveLength(1)
  })

  test('a forward step is held for its time, each by itself; the mark is between what was there before and after', () => {
    const { clock, steps, step, look, serverNow } = world()
    look()
    const before = serverNow()
    clock.advance(1_000)
    step(10 * MINUTE)
    const after = serverNow()
    clock.advance(500)
    look()
    const { ms, since } = steps.hold()!
    expect(ms).toBeGreaterThanOrEqual(10 * MINUTE)
    expect(since.getTime()).toBeGreaterThan(before.getTime() + 1_000)
    expect(since.getTime()).toBeLessThanOrEqual(after.getTime())
    clock.advance(HOLD - 1_000)
    step(5 * MINUTE)
    look()
    expect(steps.hold()!.ms).toBeGreaterThanOrEqual(15 * MINUTE)
    clock.advance(HOLD - 1_000)
    expect(steps.hold()).toBeDefined()
    clock.advance(1_000)
    expect(steps.hold()).toBeUndefined()
  })

  test('a clock that goes on stepping is held back by the steps of one hold, not by all of them', () => {
    const { clock, found, steps, step, look } = world()
    look()
    for (let i = 0; i < 100; i++) {
      clock.advance(HOLD - 10_000)
      step(3_000)
      look()
      expect(steps.hold()!.ms).toBeLessThan(7_000)
    }
    expect(found).toHaveLength(100)
    // Nor where some of it is taken back each time.
    for (let i = 0; i < 100; i++) {
      clock.advance(HOLD / 2)
      step(9_000)
      look()
      step(-4_000)
      look()
      expect(steps.hold()!.ms).toBeLessThan(16_000)
    }
  })

  test('the mark, where looks are further apart than the step is long', () => {
    const { clock, steps, step, look, serverNow } = world()
    look()
    clock.advance(10 * MINUTE)
    const before = serverNow()
    step(MINUTE)
    look()
    expect(steps.hold()!.since.getTime()).toBeGreaterThan(before.getTime())
    expect(steps.hold()!.since.getTime()).toBeLessThanOrEqual(serverNow().getTime())
  })

  test('a step that is taken back, wholly or in part; a step back is not held', () => {
    const { steps, step, look } = world()
    look()
    step(10 * MINUTE)
    look()
    step(-4 * MINUTE)
    look()
    expect(Math.round(steps.hold()!.ms / MINUTE)).toBe(6)
    step(-6 * MINUTE)
    look()
    expect(steps.hold()).toBeUndefined()
    step(-6 * MINUTE)
    look()
    expect(steps.hold()).toBeUndefined()
  })

  test("another's word counts for one that wasn't there, for no longer than its own time", () => {
    const step = { ms: 10 * MINUTE, now: new Date() }
    const [there, new1, off] = [world(), world(), world(0)]
    for (const { look } of [there, new1, off]) look()
    there.clock.advance(30_000)
    expect(there.steps.adopt(step, 10_000, 50_000)).toBe(false)
    expect(off.steps.adopt(step, 10_000, 50_000)).toBe(false)
    expect(new1.steps.adopt(step, 10_000, 24 * 60 * MINUTE)).toBe(true)
    expect(new1.steps.adopt(step, 10_000, 50_000)).toBe(false)
    new1.clock.advance(HOLD)
    expect(new1.steps.hold()).toBeUndefined()
  })
})
