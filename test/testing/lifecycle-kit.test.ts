import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { LifecycleKit, race, UnexpectedDocument } from '../../src/testing/index.js'
import { testServerUri } from '../support/database.js'
import { thingOf, thingWith } from '../support/thing.js'

describe('the kit for lifecycle tests', () => {
  let kit: LifecycleKit
  let effects: string[]

  beforeEach(async () => {
    effects = []
    const lifecycle = thingWith(async (doc, step) => {
      effects.push(`${doc._id} ${step.name ?? 'Creating'}`)
      if (step.name === undefined) return step.again({ step: 'make' })
      if (step.name === 'make') return step.again({ step: 'settle' })
      // Longer than a busy machine takes from one look to the next: it sleeps until the test lets time pass.
      return step.waitedMs < 60_000 ? step.wait('not settled', { for: '30s' }) : step.moveTo('Created')
    })
    kit = await LifecycleKit.open({ lifecycles: [lifecycle], uri: testServerUri() })
    await kit.insert('thing', { _id: 'a', phase: 'Creating' })
  })
  afterEach(() => kit.close())

  test('refuses a definition, and to run nothing', async () => {
    await expect(LifecycleKit.open({ lifecycles: [] })).rejects.toThrow('expected at least one lifecycle')
    const opened = LifecycleKit.open({ lifecycles: [thingOf({})] } as never)
    await expect(opened).rejects.toThrow(
      "LifecycleKit.open: lifecycles.0: expected a lifecycle with its handlers, got the definition of 'thing'",
    )
  })

  test('makes no folder where a server is named', async () => {
    const own = await mkdtemp(join(tmpdir(), 'phaselock-tmpdir-'))
    const { TMPDIR } = process.env
    try {
      process.env['TMPDIR'] = own
      const lifecycles = [thingWith(async (_doc, step) => step.moveTo('Created'))]
      const another = await LifecycleKit.open({ lifecycles, uri: testServerUri() })
      await another.close()
      expect(await readdir(own)).toEqual([])
    } finally {
      if (TMPDIR === undefined) delete process.env['TMPDIR']
      else process.env['TMPDIR'] = TMPDIR
      await rm(own, { recursive: true })
    }
  })

  test('ticks by hand, lets time pass, and says what it finds', async () => {
    await kit.untilIdle()
    await kit.expectHistory('thing', 'a', [
      { outcome: 'again' },
      { outcome: 'again', step: 'make' },
      { outcome: 'wait', reason: 'not settled' },
    ])
    await kit.advance('2m')
    await kit.untilIdle()
    await kit.expectPhase('thing', 'a', 'Created')
    await expect(kit.expectPhase('thing', 'a', 'Deleted')).rejects.toThrow(UnexpectedDocument)
    await expect(kit.expectHistory('thing', 'a', [{ outcome: 'park' }])).rejects.toThrow(
      /expected thing a with history/,
    )
    await expect(kit.expectPhase('thong', 'a', 'Created')).rejects.toThrow(
      /one of the kit's lifecycles \(thing\), got 'thong'/,
    )
  })

  test('untilPhase lets as much time pass as it takes, or says that it was too long', async () => {
    await kit.untilPhase('thing', 'a', 'Created')
    await kit.insert('thing', { _id: 'b', phase: 'Creating' })
    const again = await kit.insert('thing', { _id: 'b', n: 2 }, { onDuplicate: 'replaceWaiting' })
    expect(again).toEqual({ id: 'b', kind: 'replaced' })
    await expect(kit.untilPhase('thing', 'b', 'Created', { within: '20s' })).rejects.toThrow(
      /in phase Created within 20 s/,
    )
  })

  test('crash: the step ran and was not recorded; it is repeated, and no earlier one', async () => {
    const crashed = kit.crash('make')
    await kit.untilIdle()
    await crashed
    await kit.untilIdle()
    expect(effects).toEqual(['a Creating', 'a make'])
    await kit.advance('31s')
    await kit.untilIdle()
    expect(effects).toEqual(['a Creating', 'a make', 'a make', 'a settle'])
  })
})

describe('the race kit', () => {
  const lifecycle = thingOf({})
  interface Shop {
    [method: string]: (...args: never[]) => unknown
    ensure(id: string): Promise<void>
    charge(id: string): Promise<void>
  }
  const shop = (): Shop => ({ ensure: async () => {}, charge: async () => {} })

  test('finds the effect that happens twice, and where', async () => {
    const report = await race<Shop>({
      uri: testServerUri(),
      outside: shop,
      document: { _id: 'a', phase: 'Creating' },
      lifecycle: (outside) =>
        thingWith(async (doc, step) => {
          if (step.name === undefined) {
            await outside.ensure(doc._id)
            return step.again({ step: 'charge' })
          }
          await outside.charge(doc._id)
          return step.moveTo('Created')
        }, lifecycle),
      effectKey: (method, [id]) => (method === 'charge' ? `charge ${id}` : undefined),
    })
    expect(report.runs).toBe(9)
    expect(report.unfinished).toEqual([])
    expect(report.twice).toEqual([
      { fault: 'crash', at: 'after charge (call 2)', effect: 'charge a', times: 2 },
      { fault: 'pause', at: 'before charge (call 2)', effect: 'charge a', times: 2 },
      { fault: 'pause', at: 'after charge (call 2)', effect: 'charge a', times: 2 },
    ])
  })

  test('a receiver that refuses older fences takes the effect of a paused replica only once', async () => {
    const report = await race({
      uri: testServerUri(),
      outside: () => {
        let highest = 0
        const done: string[] = []
        return {
          charge: async (id: string, fence: number) => {
            if (fence < highest || done.includes(id)) return 'refused'
            highest = fence
            done.push(id)
            return 'charged'
          },
        }
      },
      document: { _id: 'a', phase: 'Creating' },
      lifecycle: (outside) =>
        thingWith(async (doc, step) => {
          await outside.charge(doc._id, step.fence)
          return step.moveTo('Created')
        }, lifecycle),
      effectKey: () => undefined,
    })
    expect(report).toMatchObject({ twice: [], unfinished: [] })
  })
})
