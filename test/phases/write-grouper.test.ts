import { describe, expect, test } from '@jest/globals'
import type { EndProgress, StepEnd, Verdict } from '../../src/lock/index.js'
import { WriteGrouper } from '../../src/phases/engine/record/outcome-recorder.js'
import { gate } from '../support/thing.js'

const end = (id: string) => ({ lease: { id } }) as unknown as StepEnd
/** Ends that wait, and commands in flight. */
const openIn = (writes: WriteGrouper) => writes['writes'].open
const turnOfTheLoop = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)))

/** Takes the place of a server whose replies the test lets come one by one. */
function slowWriter() {
  const sent: { ids: string[]; reply: () => void }[] = []
  const write = async (ends: readonly StepEnd[]) => {
    const { wait, open } = gate()
    sent.push({ ids: ends.map(({ lease }) => String(lease.id)), reply: () => open() })
    await wait
    return new Map(ends.map((one): [StepEnd, Verdict] => [one, { kind: 'recorded' }]))
  }
  return { sent, write, commands: () => sent.map(({ ids }) => ids.join('')) }
}

describe('what ends is recorded', () => {
  test('one write of a lease after the other, in the order in which they were asked for; those of others do not wait', async () => {
    const writer = slowWriter()
    const writes = new WriteGrouper(writer, () => false)
    const lease = { id: 'a' }
    const told: string[] = []
    for (const name of ['checkpoint', 'checkpoint', 'end'])
      void writes.record({ lease, name } as never).then(({ kind }) => told.push(`${name} ${kind}`))
    void writes.record(end('b')).then(({ kind }) => told.push(`b ${kind}`))
    await turnOfTheLoop()
    expect(writer.commands()).toEqual(['ab'])
    for (const [n, commands] of [
      ['ab', 'a'],
      ['ab', 'a', 'a'],
    ].entries()) {
      writer.sent[n]!.reply()
      await turnOfTheLoop()
      await turnOfTheLoop()
      expect(writer.commands()).toEqual(commands)
    }
    writer.sent[2]!.reply()
    await turnOfTheLoop()
    expect(told).toEqual(['checkpoint recorded', 'b recorded', 'checkpoint recorded', 'end recorded'])
  })

  test.each(['lost', 'movedOn', 'givenUp'])(
    'after a write that was %s nothing of that lease is sent any more',
    async (kind) => {
      let sent = 0
      const verdict = { kind, error: new Error('odd') } as Verdict
      const write = async (ends: readonly StepEnd[]) => {
        sent += 1
        return new Map(ends.map((one): [StepEnd, Verdict] => [one, verdict]))
      }
      const writes = new WriteGrouper({ write }, () => false)
      const lease = { id: 'a' }
      const verdicts = [writes.record({ lease } as never), writes.record({ lease } as never)]
      expect(await Promise.all(verdicts)).toEqual([verdict, verdict])
      expect(sent).toBe(1)
    },
  )

  test('what is in doubt keeps nobody from being recorded, and is told one by one', async () => {
    const sent: string[] = []
    let decide: EndProgress['decided']
    const write = (ends: readonly StepEnd[], { inDoubt, decided }: EndProgress = {}) => {
      sent.push(ends.map(({ lease }) => lease.id).join(''))
      inDoubt?.()
      decide = decided
      return new Promise<Map<StepEnd, Verdict>>(() => undefined)
    }
    const writes = new WriteGrouper({ write }, () => true)
    const [a, b] = [end('a'), end('b')]
    const first = writes.record(a)
    void writes.record(b)
    await turnOfTheLoop()
    decide!(a, { kind: 'recorded' })
    expect(await first).toEqual({ kind: 'recorded' })
    for (const id of 'cde') {
      void writes.record(end(id))
      await turnOfTheLoop()
    }
    expect(sent).toEqual(['ab', 'c', 'd', 'e'])
    expect(openIn(writes)).toBe(0)
  })

  test('below saturation at once, however slow the commands before it are; what ends together goes together', async () => {
    const writer = slowWriter()
    const writes = new WriteGrouper(writer, () => false)
    const recorded: Promise<Verdict>[] = []
    for (const group of ['a', 'bc', 'd', 'e']) {
      for (const id of group) recorded.push(writes.record(end(id)))
      await turnOfTheLoop()
    }
    expect(writer.commands()).toEqual(['a', 'bc', 'd', 'e'])
    for (const { reply } of [...writer.sent].reverse()) reply()
    await Promise.all(recorded)
    expect(openIn(writes)).toBe(0)
  })

  test('where others stand in line, with the first of two commands that comes back, whichever that is', async () => {
    const writer = slowWriter()
    const writes = new WriteGrouper(writer, () => true)
    const recorded: Promise<Verdict>[] = []
    for (const id of 'abcd') {
      recorded.push(writes.record(end(id)))
      await turnOfTheLoop()
    }
    expect(writer.commands()).toEqual(['a', 'b'])
    writer.sent[1]!.reply()
    await recorded[1]
    await turnOfTheLoop()
    expect(writer.commands()).toEqual(['a', 'b', 'cd'])
    for (const { reply } of writer.sent) reply()
    await Promise.all(recorded)
  })
})
