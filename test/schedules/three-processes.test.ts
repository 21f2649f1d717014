import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, test } from '@jest/globals'
import { Schedules } from '../../src/schedules/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'

const SCHEDULES = 60
const FOR_MS = 30_000

interface Effect {
  run: string
  schedule: string
  begunAt?: Date
  endedAt?: Date
}

/** Three replicas over one-second schedules; one dies. */
describe('three processes over 60 one-second schedules, one of them killed', () => {
  const database = useDatabase()
  const children: ChildProcess[] = []
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
  })

  async function replica(name: string): Promise<ChildProcess> {
    const program = fileURLToPath(new URL('scheduler-process.mjs', import.meta.url))
    const child = spawn(process.execPath, [program, database.uri, name], { stdio: ['ignore', 'pipe', 'inherit'] })
    children.push(child)
    await once(createInterface({ input: child.stdout! }), 'line')
    return child
  }

  test('every due time has exactly one run, with an end or a reason', async () => {
    const schedules = new Schedules({ db: database.db, lockTimeout: '6s' })
    const pods = await Promise.all(['pod-a', 'pod-b', 'pod-c'].map(replica))
    const [server] = await database.db
      .collection('schedules.watch')
      .aggregate([{ $project: { now: '$$NOW' } }])
      .toArray()
    const endAt = new Date(server!['now'].getTime() + FOR_MS)
    for (let i = 0; i < SCHEDULES; i += 1) {
      // Half of them make up for each due time that was missed, half for the latest.
      const more = { coalesce: i % 2 === 0, misfireGraceTime: '60s', endAt } as const
      await schedules.upsert(`every-second-${i}`, { task: 'work', cron: '* * * * * *', ...more })
    }
    await sleep(FOR_MS / 3)
    pods[0]!.kill('SIGKILL')
    await eventually(
      async () => {
        expect(await schedules.list({ phase: 'Active' })).toEqual([])
        expect(await database.db.collection('runs').countDocuments({ phase: { $in: ['Queued', 'Running'] } })).toBe(0)
      },
      { timeoutMs: FOR_MS * 8, everyMs: 500 },
    )
    const ends: Record<string, number> = {}
    const effects = await database.db.collection<Effect>('effects').find().toArray()
    const byRun = Map.groupBy(effects, (effect) => effect.run)
    for (const schedule of await schedules.list()) {
      const runs = await schedules.runs(schedule._id, { limit: 1_000 })
      const seconds = runs.map((run) => run.scheduledFor.getTime() / 1_000).reverse()
      expect(seconds).toEqual(seconds.map((_, i) => seconds[0]! + i)) // none is missing, none is there twice
      expect(seconds.at(-1)).toBe(Math.floor(endAt.getTime() / 1_000))
      for (const run of runs) {
        ends[run.phase] = (ends[run.phase] ?? 0) + 1
        const begun = byRun.get(run._id)?.length ?? 0
        const tries = run.startedAt ? 1 + (run.lost ?? 0) : 0
        if (run.phase === 'Completed') expect(begun).toBeGreaterThanOrEqual(1)
        else expect(run.reason).toEqual(expect.any(String))
        expect({ run: run._id, begun: Math.max(begun, tries) }).toEqual({ run: run._id, begun: tries })
      }
      const lost = new Set(runs.filter((run) => run.lost).map((run) => run._id))
      expectApart(effects.filter((effect) => effect.schedule === schedule._id && !lost.has(effect.run)))
      ends['lost'] = (ends['lost'] ?? 0) + lost.size
    }
    expect(ends['Completed']).toBeGreaterThan(SCHEDULES)
    expect(ends['Failed']).toBeUndefined()
  }, 500_000)
})

/** No two runs of a schedule at once. Not those that another replica took over: the one before may only be slow. */
function expectApart(effects: readonly Effect[]): void {
  const spans = effects
    .filter((effect) => effect.begunAt && effect.endedAt)
    .sort((a, b) => a.begunAt!.getTime() - b.begunAt!.getTime())
  for (const [i, span] of spans.slice(1).entries()) {
    expect(span.begunAt!.getTime()).toBeGreaterThanOrEqual(spans[i]!.endedAt!.getTime())
  }
}
