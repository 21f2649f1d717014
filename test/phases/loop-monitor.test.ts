import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { describe, expect, jest, test } from '@jest/globals'
import { lifecycleOf } from '../../src/index.js'
import { LoopMonitor } from '../../src/phases/engine/run/loop-monitor.js'
import { BoundedLog } from '../../src/phases/reporting/bounded-log.js'
import type { LoopBlocked } from '../../src/phases/reporting/observer.js'
import { observers } from '../../src/phases/reporting/observer.js'
import { cpuWaitMs } from '../../src/time/cpu-wait.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import {
  type CreatingHandler,
  gate,
  recordingLogger,
  replicaOf,
  type Thing,
  things,
  thingWith,
} from '../support/thing.js'

jest.setTimeout(90_000)
const soon = <T>(check: () => T | Promise<T>) => eventually(check, { timeoutMs: 40_000 })

const other = lifecycleOf<Thing>().define({
  name: 'other',
  collection: 'Other',
  phases: { Waiting: { next: ['Done'] }, Done: { rest: true } },
})

/** Keeps the event loop to itself, and needs no processor for it: on a busy machine the time is its own too. */
function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

function compute(ms: number): void {
  const endMs = systemClock.monotonicMs() + ms
  while (systemClock.monotonicMs() < endMs);
}

describe('a blocked event loop', () => {
  const database = useDatabase()

  const isThing = ({ by }: LoopBlocked) => by.length === 1 && by[0]?.phase === 'Creating'

  /** Steps that block one after the other, until one has been told in this way. */
  async function run(handler: (...args: Parameters<CreatingHandler>) => Promise<void>, certain: boolean) {
    const { db } = database
    const blocked: LoopBlocked[] = []
    const logger = recordingLogger({ blocked: true })
    const told = () => blocked.some((event) => isThing(event) && event.certain === certain)
    const blocks = thingWith(async (doc, step) => {
      await handler(doc, step)
      return told() ? step.moveTo('Created') : step.again()
    })
    const observer = { loopBlocked: (event: LoopBlocked) => void blocked.push(event) }
    const replica = replicaOf(db, blocks, { logger, blockedAfter: '100ms', observer })
    await replica.start()
    await things(db).insertOne({ _id: 'a', phase: 'Creating' })
    await soon(told)
    await replica.stop()
    return logger.lines.filter(({ level }) => level === 'warn').map(({ message }) => message)
  }

  test('is told with the name of the handler that did it, and logged with what to do', async () => {
    const warnings = await run(async () => block(400), true)
    expect(warnings).toContainEqual(
      expect.stringMatching(/event loop was blocked for .* by the handler of thing\/Creating: .*declare .* thread\(/),
    )
  })

  test('by a handler that has waited before: it is one of those whose steps ran', async () => {
    const warnings = await run(async () => {
      await sleep(1)
      block(400)
    }, false)
    expect(warnings).toContainEqual(expect.stringMatching(/while steps of thing\/Creating ran/))
  })

  test('while two lifecycles have steps: the one whose call lasted so long is named', async () => {
    const { db } = database
    const blocked: LoopBlocked[] = []
    const isDone = (event: LoopBlocked) => event.certain && isThing(event)
    const release = gate()
    const began = gate()
    const waits = other.handle({
      async Waiting(_doc, step) {
        began.open()
        await release.wait
        return step.moveTo('Done')
      },
    })
    const blocks = thingWith(async (_doc, step) => {
      block(400)
      return blocked.some(isDone) ? step.moveTo('Created') : step.again()
    })
    const replica = replicaOf(db, waits, {
      lifecycles: [waits, blocks],
      blockedAfter: '100ms',
      observer: { loopBlocked: (event) => void blocked.push(event) },
    })
    await replica.start()
    await db.collection('Other').insertOne({ phase: 'Waiting' })
    await began.wait
    await things(db).insertOne({ _id: 'a', phase: 'Creating' })
    await soon(() => blocked.some(isDone))
    release.open()
    await replica.stop()
  })
})

describe('a starved machine', () => {
  test.each([
    [590, /got no processor, so no handler is to blame/, []],
    [150, /blocked for .* by the handler of thing\/Creating/, [{ lifecycle: 'thing', phase: 'Creating' }]],
  ])('is told from a handler that blocks: of 600 ms it had no processor for %d', async (waitMs, said, by) => {
    const told: LoopBlocked[] = []
    const logger = recordingLogger({ blocked: true })
    const lines = new BoundedLog(logger, systemClock)
    const observer = observers([{ loopBlocked: (event) => void told.push(event) }], lines)
    let waited = 0
    const monitor = new LoopMonitor({ limitMs: 200, clock: systemClock, logger, observer, cpuWait: () => waited })
    const activity = monitor.activity('thing', 'Creating')
    monitor.start()
    activity.began()
    activity.call(() => block(600))
    waited = waitMs
    await soon(() => told.length > 0)
    monitor.stop()
    expect(told[0]).toMatchObject({ by })
    expect(logger.lines.map(({ message }) => message)).toEqual([expect.stringMatching(said)])
  })

  const onLinux = process.platform === 'linux' ? test : test.skip
  onLinux('is what the system counts, and a handler that computes or waits in a call is not', async () => {
    const greedy = Array.from({ length: 4 * availableParallelism() }, () => spawn('sh', ['-c', 'while :; do :; done']))
    try {
      await Promise.all(greedy.map((one) => once(one, 'spawn')))
      const before = cpuWaitMs()
      compute(500)
      expect(cpuWaitMs() - before).toBeGreaterThan(50)
    } finally {
      for (const one of greedy) one.kill('SIGKILL')
    }
    const before = cpuWaitMs()
    block(300)
    expect(cpuWaitMs() - before).toBeLessThan(200)
  })
})
