import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { eventually, useDatabase } from '../support/database.js'

jest.setTimeout(240_000)

const ORDERS = 40
const EACH = 20

describe('processes that are killed at any moment', () => {
  const database = useDatabase()
  const running: ChildProcess[] = []
  afterEach(() => {
    for (const one of running.splice(0)) one.kill('SIGKILL')
  })

  async function replica(name: string): Promise<ChildProcess> {
    const program = fileURLToPath(new URL('fixtures/family-process.mjs', import.meta.url))
    const child = spawn(process.execPath, [program, database.uri, name], { stdio: ['ignore', 'pipe', 'inherit'] })
    running.push(child)
    await once(createInterface({ input: child.stdout! }), 'line')
    return child
  }

  test('insert each child once, and no parent waits for ever or goes on too early', async () => {
    const { db } = database
    let [a, b] = [await replica('a'), await replica('b')]
    const orders = db.collection<{ _id: string; phase: string; counts?: object }>('Order')
    await orders.insertMany(Array.from({ length: ORDERS }, (_, i) => ({ _id: `o${i}`, phase: 'Shipping' })))
    const packed = () => db.collection('Parcel').countDocuments({ phase: 'Packed' })
    for (const [i, share] of [0.15, 0.35, 0.55, 0.8].entries()) {
      await eventually(async () => expect(await packed()).toBeGreaterThan(ORDERS * EACH * share), { timeoutMs: 60_000 })
      const victim = i % 2 === 0 ? a : b
      victim.kill('SIGKILL')
      await once(victim, 'exit')
      if (i % 2 === 0) a = await replica(`a${i}`)
      else b = await replica(`b${i}`)
    }
    const shipped = () => orders.countDocuments({ phase: 'Shipped' })
    await eventually(async () => expect(await shipped()).toBe(ORDERS), { timeoutMs: 120_000 })
    const counts = { total: EACH, succeeded: EACH, failed: 0, parked: 0, open: 0, removed: 0 }
    for (const order of await orders.find().toArray()) expect(order.counts).toEqual(counts)
    expect(await db.collection('Parcel').countDocuments()).toBe(ORDERS * EACH)
    expect(await db.collection('Parcel').countDocuments({ phase: { $ne: 'Packed' } })).toBe(0)
    // A crash repeats only the steps that it interrupted.
    const effects = await db.collection<{ _id: string; n: number }>('effects').find().toArray()
    expect(effects).toHaveLength(ORDERS * EACH)
    expect(effects.filter(({ n }) => n > 1).length).toBeLessThanOrEqual(4 * 32 * 2)
  })
})
