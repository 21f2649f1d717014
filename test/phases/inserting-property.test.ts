import { describe, expect, jest, test } from '@jest/globals'
import { lifecycleOf, OwnerClient } from '../../src/index.js'
import { ON_DUPLICATE } from '../../src/lock/index.js'
import { TestReplica } from '../../src/testing/test-replica.js'
import { testServerUri, useDatabase } from '../support/database.js'
import { randomNumbers } from '../support/random.js'
import { backDate } from '../support/thing.js'

jest.setTimeout(120_000)

/** `x` and `y` are always inserted alike; `mine` is what steps store. */
interface Job {
  _id: string
  x: number
  y: number
  mine?: number
}

const job = lifecycleOf<Job>().define({
  name: 'job',
  collection: 'Job',
  phases: { Working: { next: ['Checking', 'Done'] }, Checking: { next: ['Working', 'Done'] }, Done: { rest: true } },
})

/** Its values are in the document, or left for it. */
const TAKEN = new Set(['inserted', 'replaced', 'queued', 'restarted'])

describe('inserts among claims, ends, crashes and leases that end', () => {
  const database = useDatabase()

  test.each([1, 2, 3, 4, 5, 6])(
    'the newest values are never lost or mixed, and runAgain runs: seed %d',
    async (seed) => {
      const random = randomNumbers(seed)
      const upTo = (most: number) => Math.floor(random() * most)
      const seen: number[] = []
      const mixed: unknown[] = []
      /** Steps that run: each ends when it is told to, or never where its replica has died. */
      const running: ((how: number) => void)[] = []
      let isSettling = false

      const handler = async (doc: Job, step: any) => {
        seen.push(doc.x)
        if (doc.x !== doc.y) mixed.push(doc)
        const how = isSettling ? 0 : await new Promise<number>((resolve) => running.push(resolve))
        const set = { mine: seen.length }
        if (how === 1) return step.wait('rain', { for: '1h', set })
        if (how === 2) return step.again({ step: `${seen.length}`, set })
        if (how === 3) return step.park('no')
        if (how === 4) throw new Error('no')
        if (how === 5) await step.checkpoint(set)
        const other = doc.mine !== undefined && doc.mine % 2 === 0 ? 'Working' : 'Checking'
        if (how === 6) return step.moveTo(other, { set })
        return step.moveTo('Done', { set })
      }
      const lifecycle = () => job.handle({ Working: handler, Checking: handler })
      const open = (name: string) =>
        TestReplica.open({ uri: testServerUri(), database: database.db.databaseName, lifecycles: [lifecycle()], name })
      const replicas = [await open('a'), await open('b')]
      const owner = new OwnerClient<Job>(database.db, job.model, { doorbell: 'off' })
      for (const { replica } of replicas) await replica.prepare()

      let newest = 0
      let lastAgain = 0
      let inserting = Promise.resolve()
      const insert = async (n: number, onDuplicate: (typeof ON_DUPLICATE)[number]) => {
        const { kind } = await owner.insert({ _id: 'a', x: n, y: n }, { onDuplicate })
        if (!TAKEN.has(kind) || (kind !== 'inserted' && (onDuplicate === 'ignore' || onDuplicate === 'wake'))) return
        newest = n
        if (onDuplicate === 'runAgain') lastAgain = n
      }
      const pending: Promise<unknown>[] = []
      try {
        for (let i = 1; i <= 60; i += 1) {
          const act = random()
          if (act < 0.4) {
            const onDuplicate = ON_DUPLICATE[upTo(4)]!
            // One after the other, so that it is known which is the newest; beside everything else.
            inserting = inserting.then(() => insert(i, onDuplicate))
            if (random() < 0.5) await inserting
          } else if (act < 0.6) {
            const tick = replicas[upTo(2)]!.replica.tick().catch(() => undefined)
            if (random() < 0.7) await tick
            else pending.push(tick)
          } else if (act < 0.85) {
            running.splice(upTo(running.length), 1)[0]?.(upTo(7))
            if (random() < 0.3) await new Promise((resolve) => setImmediate(resolve))
          } else if (act < 0.95) {
            pending.push(backDate(database.db, 'a', 40_000, 'Job'))
          } else {
            const which = upTo(2)
            await replicas[which]!.crash()
            replicas[which] = await open(`${which}-${i}`)
            await replicas[which]!.replica.prepare()
          }
        }
        await inserting
        await Promise.all(pending)
        isSettling = true
        for (const end of running.splice(0)) end(0)
        for (let i = 0; i < 8; i += 1) {
          await backDate(database.db, 'a', 3_600_000, 'Job')
          await replicas[i % 2]!.replica.runOnce()
        }
        const { x, y, progress } = (await database.db.collection('Job').findOne({ _id: 'a' as never }))!
        expect({ x, y, next: progress?.next }).toEqual({ x: newest, y: newest, next: undefined })
        expect(mixed).toEqual([])
        expect(seen.filter((n) => n >= lastAgain)).not.toEqual([])
      } finally {
        for (const end of running.splice(0)) end(0)
        for (const replica of replicas) await replica.close()
      }
    },
  )
})
