import { describe, expect, jest, test } from '@jest/globals'
import { changeLockTimeout, encodeSleepsAnew, termsOf } from '../../src/lock/index.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingLogger, recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

jest.setTimeout(400_000)

/** Long enough for a renewal on a machine that stands still for seconds. */
const SHORT_MS = 5_000
const LONG_MS = 10_000
const DOCUMENTS = 60
const PATIENTLY = { timeoutMs: 100_000 }

describe('a lockTimeout that is changed while three replicas work', () => {
  const database = useDatabase()

  test('longer, then shorter: no lease is stolen, no two steps overlap, all documents are done', async () => {
    const { db } = database
    const observer = recordingObserver()
    const logger = recordingLogger()
    const highest = new Map<string, number>()
    let effects = 0
    let overlaps = 0
    let enough = false
    /** What an outside system would see of a step that still believes in its lease. */
    const effect = (id: string, step: { fence: number; leaseLeftMs(): number }) => {
      if (step.leaseLeftMs() <= 0) return
      effects += 1
      if (step.fence < (highest.get(id) ?? 0)) overlaps += 1
      else highest.set(id, step.fence)
    }
    const lifecycle = thingOf({ lockTimeout: `${SHORT_MS}ms`, concurrency: 12 })
    const handlers = thingWith(async (doc, step) => {
      const n = (doc.n ?? 0) + 1
      // Every fifth step lasts longer than the longer lockTimeout: it lives by its renewals.
      const until = systemClock.monotonicMs() + (n % 5 === 0 ? LONG_MS * 1.2 : 100)
      while (systemClock.monotonicMs() < until && !step.signal.aborted) {
        effect(doc._id, step)
        await sleep(50)
      }
      effect(doc._id, step)
      if (step.signal.aborted) throw step.signal.reason
      if (enough) return step.moveTo('Created', { set: { n } })
      return n % 3 === 0 ? step.wait('a while', { for: '500ms', set: { n } }) : step.again({ set: { n } })
    }, lifecycle)
    const documents = Array.from({ length: DOCUMENTS }, (_, i) => ({ _id: `a${i}`, phase: 'Creating', n: i % 7 }))
    await things(db).insertMany(documents)
    const replicas = ['r1', 'r2', 'r3'].map((name) => replicaOf(db, handlers, { name, observer, logger }))
    const inForce = () => replicas.map((replica) => replica.terms(lifecycle.model))
    await Promise.all(replicas.map((replica) => replica.start()))
    try {
      await eventually(() => observer.steps.length > DOCUMENTS, PATIENTLY)

      expect((await changeLockTimeout(db, 'thing', LONG_MS)).kind).toBe('changed')
      const phases = [...lifecycle.model.phases.keys()]
      await encodeSleepsAnew(db.collection('Thing'), termsOf(LONG_MS), phases, SHORT_MS)
      // A document whose holder crashed before the change is judged by the new one at once.
      await eventually(() => inForce().every((terms) => terms.lockTimeoutMs === LONG_MS))
      expect(inForce().every((terms) => terms.leaseMs === SHORT_MS)).toBe(true)
      await eventually(() => inForce().every((terms) => terms.leaseMs === LONG_MS), PATIENTLY)
      const stepsWhenLong = observer.steps.length
      await eventually(() => observer.steps.length > stepsWhenLong + DOCUMENTS, PATIENTLY)

      expect((await changeLockTimeout(db, 'thing', SHORT_MS)).kind).toBe('changed')
      await eventually(() => inForce().every((terms) => terms.leaseMs === SHORT_MS))
      expect(inForce().every((terms) => terms.lockTimeoutMs === LONG_MS)).toBe(true)
      await eventually(() => inForce().every((terms) => terms.lockTimeoutMs === SHORT_MS), PATIENTLY)
      const stepsWhenShort = observer.steps.length
      await eventually(() => observer.steps.length > stepsWhenShort + DOCUMENTS, PATIENTLY)

      enough = true
      await eventually(async () => (await things(db).countDocuments({ phase: 'Created' })) === DOCUMENTS, PATIENTLY)
    } finally {
      await Promise.all(replicas.map((replica) => replica.stop()))
    }
    expect(effects).toBeGreaterThan(1_000)
    expect({ overlaps, losses: observer.losses }).toEqual({ overlaps: 0, losses: [] })
    expect(observer.steps.filter(({ outcome }) => outcome === 'error')).toEqual([])
    expect(await things(db).countDocuments({ lockedBy: { $ne: null } as never })).toBe(0)
    const said = logger.lines.map(({ message }) => message).filter((message) => message.includes('is being changed'))
    expect(said.length).toBe(6)
  })
})
