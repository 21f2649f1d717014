import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { Limits } from '../../src/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'

jest.setTimeout(240_000)

const DOCUMENTS = 600
const SLOTS = 3

interface Effect {
  by: string
  doc: string
  tenant?: string
  begunAt?: Date
  endedAt?: Date
}

describe.each([
  ['one limit', []],
  ['the limits of two keys', ['a', 'b']],
])('three processes under %s', (_what, tenants) => {
  const database = useDatabase()
  const children: ChildProcess[] = []
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
  })

  async function replica(name: string): Promise<ChildProcess> {
    const program = fileURLToPath(new URL('fixtures/limited-process.mjs', import.meta.url))
    const child = spawn(process.execPath, [program, database.uri, name, ...(tenants.length > 0 ? [`${SLOTS}`] : [])], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    children.push(child)
    await once(createInterface({ input: child.stdout! }), 'line')
    return child
  }

  const serverNow = async (): Promise<Date> => {
    const pipeline = [{ $documents: [{}] }, { $project: { now: '$$NOW' } }]
    const [{ now }] = (await database.db.aggregate(pipeline).toArray()) as [{ now: Date }]
    return now
  }

  test('of which one is killed, one stands still past its lease and one comes late: never more at once, all done', async () => {
    const { db } = database
    await new Limits(db).set('api', { slots: SLOTS })
    const [a, b] = [await replica('a'), await replica('b')]
    await replica('c')
    const documents = db.collection<{ _id: string; phase: string; tenant?: string }>('Limited')
    const tenantOf = (i: number) => (tenants.length > 0 ? { tenant: tenants[i % tenants.length]! } : {})
    await documents.insertMany(
      Array.from({ length: DOCUMENTS }, (_, i) => ({ _id: `d${i}`, phase: 'Creating', ...tenantOf(i) })),
    )
    const created = () => documents.countDocuments({ phase: 'Created' })
    await eventually(async () => expect(await created()).toBeGreaterThan(50), { timeoutMs: 60_000 })
    // From then on these do nothing more, until they find out.
    const over = new Map<string, Date>()
    a.kill('SIGKILL')
    await once(a, 'exit')
    over.set('a', await serverNow())
    await eventually(async () => expect(await created()).toBeGreaterThan(120), { timeoutMs: 60_000 })
    b.kill('SIGSTOP')
    over.set('b', await serverNow())
    await sleep(5_000)
    b.kill('SIGCONT')
    const backAt = await serverNow()
    await replica('d')
    await eventually(async () => expect(await created()).toBe(DOCUMENTS), { timeoutMs: 120_000, everyMs: 200 })
    const effects = await db
      .collection<Effect>('effects')
      .find({ begunAt: { $exists: true } })
      .toArray()
    const endOf = ({ by, begunAt, endedAt }: Effect) => {
      const stopped = over.get(by)
      const wasCut = stopped && begunAt! <= stopped && !(endedAt && endedAt <= stopped)
      return wasCut ? stopped : (endedAt ?? begunAt!)
    }
    for (const tenant of tenants.length > 0 ? tenants : [undefined]) {
      const events = effects
        .filter((effect) => (effect.tenant ?? undefined) === tenant)
        .flatMap((effect) => [
          { at: effect.begunAt!.getTime(), n: 1 },
          { at: endOf(effect).getTime(), n: -1 },
        ])
      events.sort((one, other) => one.at - other.at || one.n - other.n)
      let [now, most] = [0, 0]
      for (const { n } of events) {
        now += n
        most = Math.max(most, now)
      }
      expect(most).toBe(SLOTS)
    }
    expect(new Set(effects.map(({ doc }) => doc)).size).toBe(DOCUMENTS)
    // Each that was cut off was taken up once more, and nothing else was.
    expect(effects.length - DOCUMENTS).toBeLessThanOrEqual(2 * SLOTS * Math.max(1, tenants.length))
    expect(effects.some(({ by, begunAt }) => by === 'b' && begunAt! > backAt)).toBe(true)
    for (const child of children) child.kill('SIGTERM')
    const holders = async () => (await new Limits(db).list({ keys: true })).flatMap((limit) => limit.holders)
    await eventually(async () => expect(await holders()).toEqual([]), { timeoutMs: 20_000 })
  })
})
