import { describe, expect, test } from '@jest/globals'
import type { StepEnd, Verdict } from '../../src/lock/index.js'
import { Recorder } from '../../src/phases/engine/recorder.js'
import { gate } from '../support/thing.js'

const end = (id: string) => ({ lease: { id } }) as unknown as StepEnd
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
  test('below saturation at once, however slow the commands before it are; what ends together goes together', async () => {
    const writer = slowWriter()
    const recorder = new Recorder(writer, () => false)
    const recorded: Promise<Verdict>[] = []
    for (const group of ['a', 'bc', 'd', 'e']) {
      for (const id of group) recorded.push(recorder.record(end(id)))
      await turnOfTheLoop()
    }
    expect(writer.commands()).toEqual(['a', 'bc', 'd', 'e'])
    for (const { reply } of [...writer.sent].reverse()) reply()
    await Promise.all(recorded)
    expect(recorder.open).toBe(0)
  })

  test('where others stand in line, with the first of two commands that comes back, whichever that is', async () => {
    const writer = slowWriter()
    const recorder = new Recorder(writer, () => true)
    const recorded: Promise<Verdict>[] = []
    for (const id of 'abcd') {
      recorded.push(recorder.record(end(id)))
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
