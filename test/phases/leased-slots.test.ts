import { describe, expect, test } from '@jest/globals'
import type { SlotGrant } from '../../src/lock/index.js'
import { LimitLease } from '../../src/phases/engine/limits/limit-lease.js'
import { ManualClock } from '../lock/fixture.js'
import { recordingLogger } from '../support/thing.js'

const LEASE_MS = 30_000
const NEED = { limit: 'api', slots: 1 }
const PAIR = { limit: 'api', slots: 2 }

interface Asked {
  readonly inUse: number
  readonly slots: number
  readonly starts: number
}

/** One replica's slots of a limit whose server is here: it has `slots`, of which other replicas hold `others`. */
function slotsOf(slots: number | null = 5, others = 0, more: object = {}) {
  const clock = new ManualClock()
  const logger = recordingLogger()
  const server = { slots, others, fails: false, hold: undefined as object | undefined, ...more } as {
    slots: number | null
    others: number
    fails: boolean
    hold: object | undefined
    paused?: object
    rate?: { starts: number; perMs: number }
    missing?: boolean
    othersWait?: boolean
    isNext?: boolean
    /** Free slots that it grants to no request of this replica now. */
    reserved?: number
  }
  const asked: Asked[] = []
  const ask = async (_name: string, request: Asked): Promise<SlotGrant | undefined> => {
    asked.push({ inUse: request.inUse, slots: request.slots, starts: request.starts })
    if (server.fails) throw new Error('the database is away')
    if (server.missing) return undefined
    const total = server.paused ? 0 : (server.slots ?? 1_000)
    const granted = Math.max(
      request.inUse,
      Math.min(request.inUse + request.slots, total - server.others - (server.reserved ?? 0)),
    )
    const holders = [
      { by: 'self', slots: granted },
      { by: 'other', slots: server.others },
    ]
    return {
      slots: granted,
      starts: server.rate ? Math.max(0, Math.min(request.starts, server.rate.starts)) : 0,
      limit: {
        ...{ name: 'api', slots: server.slots, rate: server.rate ?? null, paused: server.paused ?? null },
        ...{ holders, damaged: null },
      } as never,
      othersWait: server.othersWait ?? false,
      isNext: server.isNext ?? false,
      isShort: server.reserved === undefined && granted < request.inUse + request.slots,
    }
  }
  const options = {
    ...{ identity: 'self', clock, logger, leaseMs: () => LEASE_MS, db: undefined },
    serverClock: { hold: () => server.hold, now: () => undefined },
  }
  const lease = new LimitLease(NEED, options as never, { ask } as never)
  return { lease, server, clock, asked, logger }
}

describe('the slots of one limit on one replica', () => {
  test('are leased, used, given back and used again without another request', async () => {
    const { lease, asked } = slotsOf(5)
    expect(await lease.take(NEED, 3)).toBe(3)
    lease.release(NEED, 3, false)
    expect(await lease.take(NEED, 3)).toBe(3)
    expect(asked).toEqual([{ inUse: 0, slots: 3, starts: 3 }])
    expect(lease.held()).toMatchObject({ leased: 3, used: 3, total: 5 })
  })

  test('are as many as there are; for documents that need two each, pairs only', async () => {
    const { lease } = slotsOf(5)
    expect(await lease.take(PAIR, 10)).toBe(2)
    expect(lease.held()).toMatchObject({ used: 4 })
  })

  test("that are reserved for others don't count as free until a request gets some: a look would find documents in vain", async () => {
    const { lease, server } = slotsOf(2, 1, { reserved: 1 })
    expect(lease.free(NEED)).toBe(Number.POSITIVE_INFINITY)
    expect(await lease.take(NEED, 1)).toBe(0)
    expect(lease.free(NEED)).toBe(0)
    delete server.reserved
    expect(await lease.take(NEED, 1)).toBe(1)
    expect(lease.free(NEED)).toBe(0)
    server.others = 0
    lease.refresh()
    expect(await lease.take(NEED, 1)).toBe(1)
  })

  test("of which none is granted while a step of the server's clock is unconfirmed don't count as free", async () => {
    const { lease, server, clock } = slotsOf(5, 0, { hold: {} })
    expect(await lease.take(NEED, 1)).toBe(0)
    expect(lease.free(NEED)).toBe(0)
    server.hold = undefined
    clock.advance(1_000)
    expect(await lease.take(NEED, 1)).toBe(1)
    expect(lease.free(NEED)).toBe(4)
  })

  test('where others have them all: none; how many may be had is known from the last request', async () => {
    const { lease, server } = slotsOf(5, 5)
    expect(lease.free(NEED)).toBe(Number.POSITIVE_INFINITY)
    expect(await lease.take(NEED, 1)).toBe(0)
    expect(lease.free(NEED)).toBe(0)
    server.others = 1
    expect(await lease.take(NEED, 1)).toBe(1)
    expect([lease.free(NEED), lease.free(PAIR)]).toEqual([3, 1])
  })

  test('fewer than it asked for: for 50 ms those that are given back here are free, then only a request can show how many are', async () => {
    const { lease, clock } = slotsOf(5, 2)
    expect(await lease.take(NEED, 10)).toBe(3)
    lease.release(NEED, 2, false)
    expect([lease.free(NEED), lease.reuses(1)]).toEqual([2, true])
    clock.advance(51)
    expect([lease.free(NEED), lease.reuses(1)]).toEqual([0, false])
  })

  test('as many as are wanted are leased, if more documents may follow; only those for the documents at hand are in use', async () => {
    const { lease, asked } = slotsOf(5)
    expect(await lease.take(NEED, 1, 3)).toBe(1)
    expect(lease.held()).toMatchObject({ leased: 3, used: 1 })
    expect(await lease.take(NEED, 2)).toBe(2)
    expect(asked).toHaveLength(1)
  })

  test('whose turn is next is known from the last request', async () => {
    const { lease } = slotsOf(5, 5, { isNext: true })
    expect(lease.isNext).toBe(false)
    await lease.take(NEED, 1)
    expect(lease.isNext).toBe(true)
  })

  test('are in danger after two thirds of the lease, and none is put to use then without another request', async () => {
    const { lease, clock, asked } = slotsOf(5)
    await lease.take(NEED, 2)
    lease.release(NEED, 1, false)
    clock.advance((LEASE_MS * 2) / 3 + 1)
    expect(lease.isInDanger).toBe(true)
    expect(await lease.take(NEED, 1)).toBe(1)
    expect(asked).toHaveLength(2)
    expect(lease.isInDanger).toBe(false)
  })

  test('are renewed after a third of the lease, with what is in use', async () => {
    const { lease, clock, asked } = slotsOf(5)
    await lease.take(NEED, 2)
    await lease.keep()
    expect(asked).toHaveLength(1)
    clock.advance(LEASE_MS / 3)
    await lease.keep()
    expect(asked[1]).toMatchObject({ inUse: 2, slots: 0 })
  })

  test('that no document has needed for a second are given back', async () => {
    const { lease, clock, asked } = slotsOf(5)
    await lease.take(NEED, 2)
    lease.release(NEED, 2, false)
    await lease.keep()
    expect(asked).toHaveLength(1)
    clock.advance(1_000)
    await lease.keep()
    expect(asked[1]).toMatchObject({ inUse: 0, slots: 0 })
    expect(lease.isIdle).toBe(true)
  })

  test('are shared at once when others wait', async () => {
    const { lease, asked, server } = slotsOf(5)
    server.othersWait = true
    await lease.take(NEED, 4)
    lease.release(NEED, 3, true)
    await lease.settle()
    expect(asked[1]).toMatchObject({ inUse: 1, slots: 0 })
    expect(lease.held()).toMatchObject({ leased: 1, used: 1 })
  })

  test('of a limit that was lowered meanwhile are not used again', async () => {
    const { lease, server } = slotsOf(5)
    await lease.take(NEED, 5)
    server.slots = 2
    await lease.settle()
    expect(lease.isSound).toBe(false)
    lease.release(NEED, 3, false)
    expect(lease.held()).toMatchObject({ used: 2 })
    expect(await lease.take(NEED, 1)).toBe(0)
    lease.release(NEED, 1, false)
    expect(await lease.take(NEED, 1)).toBe(1)
  })

  test('after a request with an unknown outcome: what it may have leased counts as leased, and none of it is used', async () => {
    const { lease, server } = slotsOf(5)
    await lease.take(NEED, 2)
    server.fails = true
    await expect(lease.take(NEED, 3)).rejects.toThrow('the database is away')
    expect(lease.held()).toMatchObject({ leased: 5, used: 2 })
    server.fails = false
    await lease.settle()
    expect(lease.held()).toMatchObject({ leased: 2, used: 2 })
  })

  test('none is asked for while a step of the server clock is not confirmed', async () => {
    const { lease, server, asked } = slotsOf(5)
    server.hold = {}
    expect(await lease.take(NEED, 2)).toBe(0)
    expect(asked).toEqual([{ inUse: 0, slots: 0, starts: 0 }])
  })

  test('of a rate: a document that begins uses up a start; one that did not begin gives it back', async () => {
    const { lease } = slotsOf(null, 0, { rate: { starts: 2, perMs: 1_000 } })
    expect(await lease.take(NEED, 5)).toBe(2)
    expect(lease.isRated).toBe(true)
    lease.release(NEED, 1, true)
    expect(await lease.take(NEED, 1)).toBe(1)
    expect(lease.startEveryMs).toBe(500)
  })

  test('one request at a time: two takes in a row never use the same slot', async () => {
    const { lease } = slotsOf(3)
    expect(await Promise.all([lease.take(NEED, 2), lease.take(NEED, 2)])).toEqual([2, 1])
    expect(lease.held()).toMatchObject({ used: 3 })
  })
})

test.each([
  [{ missing: true }, 1, /^limit api: it isn't in phaselock.limits, .* to set it: phaselock limits set api --slots 1$/],
  [{ slots: 1 }, 2, /^limit api: it has 1 slot, and a step needs 2, .* to set it: phaselock limits set api --slots 2$/],
  [{ paused: { by: 'ana', until: null } }, 1, /^limit api: paused by ana.*; documents that need it wait$/],
])('only a person can help with %j: it is logged once, and once when it is over', async (state, each, message) => {
  const { lease, server, logger, clock } = slotsOf(5, 0, state)
  const need = { limit: 'api', slots: each }
  for (let i = 0; i < 3; i += 1) {
    expect(await lease.take(need, 1)).toBe(0)
    expect(lease.isHopeless(need)).toBe(true)
  }
  expect(logger.lines.map((line) => line.message)).toEqual([expect.stringMatching(message)])
  Object.assign(server, { missing: false, slots: 5, paused: undefined })
  clock.advance(2_000)
  expect(await lease.take(need, 1)).toBe(1)
  expect(logger.lines.map((line) => line.message)[1]).toBe('limit api: there are slots again')
})
