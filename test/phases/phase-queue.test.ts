import { describe, expect, jest, test } from '@jest/globals'
import { askAgainMs, type ClaimReport, PhaseQueue } from '../../src/phases/engine/claim/phase-queue.js'
import { PhaseQueues } from '../../src/phases/engine/claim/phase-queues.js'
import { ManualClock } from '../lock/fixture.js'

const NOW = 1_000_000
const NEVER = Number.POSITIVE_INFINITY

const report = (more: Partial<ClaimReport> = {}): ClaimReport => ({
  ...{ won: 0, wonKeys: () => [], isFruitless: true, hasMore: false },
  ...more,
})
const BLOCKED = report({ obstacles: [{ by: 'limits', notBeforeMs: 200 }] })
const MORE = report({ won: 2, isFruitless: false, hasMore: true })

const STATES = ['idle', 'due', 'backlog', 'blocked', 'failed'] as const

/** A queue in a state, with its ticket where it has one. */
function queueIn(state: (typeof STATES)[number]): PhaseQueue {
  const queue = new PhaseQueue('Creating')
  if (state === 'due') queue.offered(1)
  if (state === 'backlog') queue.ends(MORE, NOW, 1)
  if (state === 'blocked') queue.ends(BLOCKED, NOW, 1)
  if (state === 'failed') queue.fails()
  expect(queue.state.is).toBe(state)
  return queue
}

/** For each event: what becomes of idle, due, backlog, blocked and failed, and which ticket each has then. */
const TABLE: readonly [string, (queue: PhaseQueue) => void, states: string, tickets: string][] = [
  ['is offered', (queue) => queue.offered(7), 'due due backlog blocked failed', '7 1 1 7 7'],
  ['begins a claim', (queue) => queue.begins(), 'idle idle backlog blocked failed', '- - - - -'],
  ['ends with more left', (queue) => queue.ends(MORE, NOW, 7), 'backlog backlog backlog backlog backlog', '7 1 1 7 7'],
  ['ends blocked', (queue) => queue.ends(BLOCKED, NOW, 7), 'blocked blocked blocked blocked blocked', '- 1 1 - -'],
  ['ends with all taken', (queue) => queue.ends(report({ won: 1 }), NOW, 7), 'idle due due idle idle', '- 1 1 - -'],
  ['fails', (queue) => queue.fails(), 'failed failed failed failed failed', '- - - - -'],
  ['forgets', (queue) => queue.forgets(), 'idle idle idle blocked failed', '- - - - -'],
  ['is cleared by a look', (queue) => void queue.clears(), 'idle due backlog idle failed', '- 1 1 - -'],
  ['wakes', (queue) => wakeDue(queue), 'due due backlog blocked failed', '7 1 1 7 7'],
  ['is freed', (queue) => wait(queue).freed('limits', 7), 'due due backlog blocked failed', '7 1 1 7 7'],
  ['is freed and had not waited', (queue) => queue.freed('limits', 7), 'idle due backlog blocked failed', '- 1 1 - -'],
]

const wait = (queue: PhaseQueue) => {
  queue.waits('limits')
  return queue
}
const wakeDue = (queue: PhaseQueue) => {
  queue.dueIn(10, NOW)
  expect(queue.wake(NOW + 200, 7)).toBe(true)
}

test.each(TABLE)('a queue that %s', (_event, happens, states, tickets) => {
  const after = STATES.map((state) => {
    const queue = queueIn(state)
    happens(queue)
    return queue
  })
  expect(after.map(({ state }) => state.is).join(' ')).toBe(states)
  expect(after.map(({ ticket }) => ticket ?? '-').join(' ')).toBe(tickets)
})

describe('times', () => {
  test('that come within 50 ms are one, and are over once they have come', () => {
    const queue = new PhaseQueue('Creating')
    for (const ms of [101, 110, 150]) queue.dueIn(ms, NOW)
    queue.dueIn(5_000, NOW)
    expect(queue.wakesAtMs - NOW).toBeGreaterThanOrEqual(150)
    expect(queue.wakesAtMs - NOW).toBeLessThanOrEqual(200)
    expect(queue.wake(queue.wakesAtMs - 1, 1)).toBe(false)
    expect(queue.ticket).toBeUndefined()
    expect(queue.wake(queue.wakesAtMs, 1)).toBe(true)
    expect(queue.wakesAtMs - NOW).toBeGreaterThanOrEqual(5_000)
  })

  test('further ahead than 30 s are left to the looks', () => {
    const queue = new PhaseQueue('Creating')
    queue.dueIn(30_001, NOW)
    queue.retryIn(30_001, NOW)
    expect(queue.wakesAtMs).toBe(NEVER)
  })

  test('of tries: the soonest one counts, and none is sooner than after 50 ms', () => {
    const queue = new PhaseQueue('Creating')
    queue.retryIn(900, NOW)
    queue.retryIn(400, NOW)
    queue.retryIn(700, NOW)
    expect(queue.wakesAtMs).toBe(NOW + 400)
    queue.retryIn(0, NOW)
    expect(queue.wakesAtMs).toBe(NOW + 50)
    queue.wake(NOW + 50, 1)
    expect(queue.wakesAtMs).toBe(NEVER)
  })
})

describe('a claim', () => {
  test('that took none counts its tries and since when, until one takes some', () => {
    const queue = new PhaseQueue('Creating')
    for (const at of [0, 200, 600]) queue.ends(BLOCKED, NOW + at, 1)
    expect(queue.state).toEqual({ is: 'blocked', by: 'limits', sinceMs: NOW, tries: 3 })
    expect(queue.isBlockedBy('limits')).toBe(true)
    expect(queue.isBlockedBy('isolation')).toBe(false)
    queue.ends({ ...BLOCKED, won: 1 }, NOW + 700, 1)
    expect(queue.state).toEqual({ is: 'idle' })
    queue.ends(BLOCKED, NOW + 900, 1)
    expect(queue.state).toEqual({ is: 'blocked', by: 'limits', sinceMs: NOW + 900, tries: 1 })
    queue.ends(report({ obstacles: [{ by: 'isolation' }] }), NOW + 1_000, 1)
    expect(queue.state).toEqual({ is: 'blocked', by: 'isolation', sinceMs: NOW + 1_000, tries: 1 })
  })

  test('is repeated when an obstacle may be gone, also where it took some', () => {
    const queue = new PhaseQueue('Creating')
    const obstacles = [{ by: 'limits', notBeforeMs: 300 } as const, { by: 'isolation', notBeforeMs: 100 } as const]
    queue.ends(report({ won: 3, obstacles }), NOW, 1)
    expect(queue.wakesAtMs).toBe(NOW + 100)
  })

  test('that lacked slots is repeated less often with each try, up to once a second', () => {
    const queue = new PhaseQueue('Creating')
    const lacking = (nowMs: number, more: object = {}) => {
      queue.ends(report({ obstacles: [{ by: 'limits', ...more }] }), nowMs, 1)
      const inMs = queue.wakesAtMs - nowMs
      queue.wake(queue.wakesAtMs, 1)
      return inMs
    }
    expect(Array.from({ length: 6 }, () => lacking(NOW))).toEqual([50, 50, 80, 160, 250, 250])
    expect(lacking(NOW + 60_000)).toBe(1_000)
    expect(lacking(NOW + 60_000, { withinMs: 250 })).toBe(250) // free slots may be reserved for this replica
    expect(lacking(NOW + 60_000, { notBeforeMs: 6_000 })).toBe(6_000) // a rate admits no document sooner
    expect(lacking(NOW + 60_000, { notBeforeMs: 6_000, withinMs: 250 })).toBe(6_000)
  })

  test('that isolation stopped is repeated at a known time only', () => {
    const queue = new PhaseQueue('Creating')
    queue.ends(report({ obstacles: [{ by: 'isolation' }] }), NOW, 1)
    expect(queue.wakesAtMs).toBe(NEVER)
    queue.ends(report({ obstacles: [{ by: 'isolation', notBeforeMs: 1_500 }] }), NOW, 1)
    expect(queue.wakesAtMs).toBe(NOW + 1_500)
  })

  test('that was blocked is not repeated for documents that were rung for and not found', () => {
    const queue = new PhaseQueue('Creating')
    queue.expects(['a'])
    queue.begins()
    queue.ends(report({ obstacles: [{ by: 'limits', notBeforeMs: 900 }] }), NOW, 1)
    expect(queue.wakesAtMs).toBe(NOW + 900)
  })

  test('that comes before what was rung for is stored is repeated soon; one that finds it, or leaves more, is not', () => {
    const missing = (won: string[], hasMore = false) => {
      const queue = new PhaseQueue('Creating')
      queue.expects(['a', 'b'])
      queue.begins()
      queue.expects(['c']) // after the query: for the next claim
      queue.ends(report({ won: won.length, wonKeys: () => won, hasMore }), NOW, 1)
      return queue.wakesAtMs - NOW
    }
    expect(missing(['a'])).toBe(50)
    expect(missing(['a', 'b'])).toBe(NEVER)
    expect(missing([], true)).toBe(NEVER)
  })

  test('that left documents to other replicas is repeated when they may be claimed by any', () => {
    const queue = new PhaseQueue('Creating')
    queue.ends(report({ othersInMs: 120 }), NOW, 1)
    expect(queue.wakesAtMs).toBe(NOW + 120)
    expect(queue.state.is).toBe('idle')
  })

  test('under way: what is offered in the meantime is due after it', () => {
    const queue = new PhaseQueue('Creating')
    queue.offered(1)
    queue.begins()
    queue.offered(2)
    queue.ends(report({ won: 1 }), NOW, 3)
    expect([queue.state.is, queue.ticket]).toEqual(['due', 2])
  })
})

test('nothing is due any more: it waits for no slot and for no other try', () => {
  const queue = queueIn('blocked')
  queue.waits('limits')
  expect(queue.clears()).toBe(true)
  expect(queue.wakesAtMs).toBe(NEVER)
  expect(queue.isWaitingFor('limits')).toBe(false)
  expect(queue.clears()).toBe(false)
})

test('what looks find due for five seconds is dated, then each half minute; it begins anew where nothing was due', () => {
  const queue = new PhaseQueue('Creating')
  const dates: number[] = []
  for (let s = 0; s <= 70; s += 1) if (queue.isLeftDue(true, NOW + s * 1_000)) dates.push(s)
  expect(dates).toEqual([5, 35, 65])
  expect([queue.isLeftDue(false, NOW + 99_000), queue.isLeftDue(true, NOW + 100_000)]).toEqual([false, false])
})

test('a queue is freed once, and only by what it waits for', () => {
  const queue = new PhaseQueue('Creating')
  queue.waits('isolation')
  queue.freed('limits', 1)
  expect(queue.ticket).toBeUndefined()
  queue.freed('isolation', 2)
  expect(queue.ticket).toBe(2)
  queue.begins()
  queue.freed('isolation', 3)
  expect(queue.ticket).toBeUndefined()
})

describe('the queues of a lifecycle', () => {
  function queuesOf(paused: string[] = []) {
    const clock = new ManualClock()
    const onOffered = jest.fn()
    const queues = new PhaseQueues(['First', 'Second', 'Third'], {
      ...{ clock, onOffered },
      isPaused: (phase) => paused.includes(phase),
    })
    const next = () => queues.next(() => true)?.phase
    return { clock, queues, onOffered, next }
  }

  test('are served first come, first served; one that failed goes last, one without room and a paused one not at all', () => {
    const { queues, next } = queuesOf(['Third'])
    queues.offer(['Second', 'Third'])
    queues.offer(['First', 'Second'])
    expect(next()).toBe('Second')
    expect(queues.next((phase) => phase !== 'Second')?.phase).toBe('First')
    queues.of('Second')!.fails()
    queues.offer(['Second'])
    expect(next()).toBe('First')
    queues.of('First')!.begins()
    expect(next()).toBe('Second')
    queues.of('Second')!.begins()
    expect(next()).toBeUndefined()
  })

  test('have one timer, for the time that comes next; none is set for a time before now, and none after a stop', () => {
    jest.useFakeTimers()
    try {
      const set = jest.spyOn(globalThis, 'setTimeout')
      const { clock, queues, onOffered, next } = queuesOf()
      queues.of('First')!.dueIn(5_000, clock.monotonicMs())
      queues.setTimer()
      queues.of('Second')!.retryIn(100, clock.monotonicMs())
      queues.setTimer()
      expect(jest.getTimerCount()).toBe(1)
      clock.advance(100)
      jest.advanceTimersByTime(100)
      expect([next(), onOffered.mock.calls.length]).toEqual(['Second', 1])
      queues.of('Third')!.retryIn(50, clock.monotonicMs() - 1_000)
      queues.setTimer()
      expect(set.mock.calls.every(([, ms]) => ms! >= 0)).toBe(true)
      queues.stop()
      expect([jest.getTimerCount(), next()]).toEqual([0, undefined])
    } finally {
      jest.useRealTimers()
    }
  })
})

test.each([
  [0, 1, 20],
  [0, 3, 80],
  [0, 9, 250],
  [4_000, 9, 500],
  [60_000, 9, 1_000],
])('after waiting for %i ms and %i tries the next one comes after %i ms', (waitedMs, tries, ms) => {
  expect(askAgainMs(waitedMs, tries)).toBe(ms)
})
