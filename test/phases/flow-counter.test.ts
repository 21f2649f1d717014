import { describe, expect, test } from '@jest/globals'
import { addUp, MINUTES_IN_BEAT, MOST_ROWS, OTHER, powerOf, timesOf } from '../../src/lock/index.js'
import { FlowCounter } from '../../src/phases/engine/registry/flow-counter.js'

/** A counter whose server's clock is set by hand, in minutes. */
function counterAt(minute: number) {
  const clock = { minute }
  const flows = new FlowCounter(() => new Date(clock.minute * 60_000 + 17_000))
  flows.turn()
  const at = (next: number) => {
    clock.minute = next
    flows.turn()
  }
  return { flows, flow: flows.of('thing'), at }
}

const parked = (cause: string) => ({ kind: 'park', step: null, reason: 'no', error: null, cause }) as const

describe('the flow that a replica counts', () => {
  test('a minute goes out when it is over, and never changes then', () => {
    const { flows, flow, at } = counterAt(5)
    flow.moved('Packing', 'Packing', 'again')
    flow.moved('Packing', 'Packing', 'again')
    flow.moved('Packing', 'Shipped', 'moveTo', 1, 1_500)
    expect(flows.unsent()).toEqual([])
    at(6)
    const [minute] = flows.unsent()
    expect(minute).toEqual({
      seq: 1,
      at: new Date(5 * 60_000),
      lifecycles: [
        {
          name: 'thing',
          moves: [
            { from: 'Packing', to: 'Packing', outcome: 'again', n: 2 },
            { from: 'Packing', to: 'Shipped', outcome: 'moveTo', n: 1 },
          ],
          causes: [],
          times: [{ phase: 'Packing', low: 10, n: [1] }],
        },
      ],
    })
    const before = structuredClone(minute)
    flow.moved('Packing', 'Packing', 'again')
    expect(minute).toEqual(before)
    flows.sent([minute!])
    expect(flows.unsent()).toEqual([])
  })

  test('nothing while nothing is recorded', () => {
    const { flows, at } = counterAt(5)
    for (let minute = 6; minute < 20; minute += 1) at(minute)
    expect([flows.unsent(), flows.isRecent, flows.last()]).toEqual([[], false, []])
  })

  test('what no beat has carried is sent again, but no more than a few minutes; a duty is asked for while there are some', () => {
    const { flows, flow, at } = counterAt(0)
    for (let minute = 1; minute < 30; minute += 1) {
      flow.moved('A', 'A', 'wait')
      at(minute)
    }
    // During an outage there is nothing to copy, and nothing is dropped because of its age.
    at(60)
    expect([flows.isRecent, flows.unsent().map(({ seq }) => seq)]).toEqual([
      false,
      Array.from({ length: MINUTES_IN_BEAT }, (_, i) => 30 - MINUTES_IN_BEAT + i),
    ])
    flows.sent(flows.unsent())
    at(60 + MINUTES_IN_BEAT)
    expect([flows.isRecent, flows.unsent()]).toEqual([true, []])
    at(61 + MINUTES_IN_BEAT)
    expect([flows.isRecent, flows.last()]).toEqual([false, []])
  })

  test('a clock that steps back makes no minute change: the parts have numbers of their own', () => {
    const { flows, flow, at } = counterAt(5)
    flow.moved('A', 'A', 'wait')
    at(6)
    flow.moved('A', 'A', 'wait')
    at(5)
    flow.moved('A', 'A', 'wait')
    at(6)
    expect(flows.unsent().map(({ seq, at }) => [seq, at.getTime() / 60_000])).toEqual([
      [1, 5],
      [2, 6],
      [3, 5],
    ])
  })

  test('more moves or causes than rows are summed as others: none is lost', () => {
    const { flows, flow } = counterAt(5)
    for (let i = 0; i < 500; i += 1) {
      flow.moved('A', `to ${i}`, 'moveTo')
      flow.caused(parked(i.toString(16).padStart(12, '0')), 'a')
    }
    const [
      {
        lifecycles: [sums],
      } = { lifecycles: [] },
    ] = flows.last()
    expect(sums!.moves.length).toBeLessThanOrEqual(MOST_ROWS + 1)
    expect(sums!.causes.length).toBeLessThanOrEqual(MOST_ROWS + 1)
    for (const rows of [sums!.moves, sums!.causes]) expect(rows.reduce((all, { n }) => all + n, 0)).toBe(500)
    expect(sums!.moves.find(({ outcome }) => outcome === OTHER)?.n).toBe(300)
    expect(sums!.causes.find(({ cause }) => cause === OTHER)?.n).toBe(300)
  })

  test('all lifecycles of a replica together have a bound, too; the next minute begins with room', () => {
    const { flows, at } = counterAt(5)
    const fill = () => {
      for (let name = 0; name < 20; name += 1)
        for (let i = 0; i < 150; i += 1) flows.of(`lifecycle ${name}`).moved('A', `to ${i}`, 'moveTo')
    }
    fill()
    at(6)
    fill()
    at(7)
    for (const { lifecycles } of flows.unsent()) {
      const moves = lifecycles.flatMap((one) => one.moves)
      expect(moves.length).toBeLessThanOrEqual(1_020)
      expect(moves.reduce((all, { n }) => all + n, 0)).toBe(20 * 150)
    }
  })

  test('sums add up, in any order, to the same', () => {
    const sums = (n: number) => ({
      moves: [{ from: 'A', to: 'B', outcome: 'moveTo', n }],
      causes: [{ cause: 'c', kind: 'error', text: 'no', n, versions: [`v${n}`] } as const],
      times: [
        timesOf(
          'A',
          Array.from({ length: n + 1 }, (_, i) => (i === n ? 1 : 0)),
        ),
      ],
    })
    const one = addUp([sums(3), addUp([sums(5), sums(7)])])
    expect(one.moves).toEqual([{ from: 'A', to: 'B', outcome: 'moveTo', n: 15 }])
    expect(one.causes).toEqual([{ cause: 'c', kind: 'error', text: 'no', n: 15, versions: ['v3', 'v5', 'v7'] }])
    expect(one.times).toEqual([{ phase: 'A', low: 3, n: [1, 0, 1, 0, 1] }])
    expect(addUp([addUp([sums(7), sums(3)]), sums(5)]).times).toEqual(one.times)
    expect([0, 1, 2, 3, 1_023, 1_024, 1e300].map(powerOf)).toEqual([0, 0, 1, 1, 9, 10, 47])
  })
})
