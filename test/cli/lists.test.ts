import { fileURLToPath } from 'node:url'
import { describe, expect, jest, test } from '@jest/globals'
import { type Collection, type Document } from 'mongodb'
import { ensureLockIndexes, moreIndexes, PARKED_AT } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { thing } from '../support/thing.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

const ORDERS = fileURLToPath(new URL('fixtures/orders.mjs', import.meta.url))

describe('phaselock list', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const orders = () => database.db.collection('Order') as unknown as Collection<{ _id: string } & Document>

  test('turns pages, and takes each filter', async () => {
    const run = (...args: string[]) =>
      folder().run(['list', ...args], { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: ORDERS })
    await ensureLockIndexes(database.db.collection('Order'), {}, [
      ...moreIndexes({ ...thing.model.settings, search: ['customer'], fairBy: 'tenant' }),
    ])
    const now = Date.now()
    const cause = 'a1b2c3d4e5f6'
    await orders().insertMany([
      { _id: 'a', phase: 'Packing', updatedAt: new Date(now - 7_200_000), customer: '4711', tenant: 7 },
      { _id: 'b', phase: 'Packing', updatedAt: new Date(now), customer: '4711', note: 'own' },
      { _id: 'c', phase: 'Packing', lockedAt: PARKED_AT, progress: { error: { name: 'E', message: 'm', cause } } },
      { _id: 'd', phase: 'Packed', updatedAt: new Date(now) },
    ])
    const ids = async (...args: string[]) =>
      ((await run('order', '--json', ...args)).json() as Document[]).map(({ document }) => document['_id'])

    const first = await run('order', '--limit', '2')
    expect(first.out).toMatch(/^\(the first 2; more with: --after \S+\)$/m)
    const [, cursor] = /--after '?([^')]+)'?\)/.exec(first.out)!
    const second = await run('order', '--limit', '2', '--after', cursor!)
    expect([...`${first.out}${second.out}`.matchAll(/^([a-d]) /gm)].map(([, id]) => id)).toEqual(['d', 'a', 'b', 'c'])
    expect(second.out).not.toContain('--after')
    const json = await run('order', '--limit', '2', '--json')
    expect(json.err).toMatch(/^\(the first 2; more with: --after /)
    expect(await run('order', '--newest', '--after', cursor!)).toMatchObject({
      code: 2,
      err: expect.stringContaining('expected a cursor of this list'),
    })

    expect(await ids('--newest')).toEqual(['c', 'b', 'a', 'd'])
    expect(await ids('--condition', 'due')).toEqual(['a', 'b'])
    expect(await ids('--cause', cause)).toEqual(['c'])
    expect(await ids('--key', '7')).toEqual(['a'])
    expect(await ids('--older-than', '1h')).toEqual(['a'])
    expect(await ids('--filter', '{"customer": "4711"}')).toEqual(['a', 'b'])
    const own = async (...args: string[]) =>
      ((await run('order', '--filter', '{"customer": "4711"}', '--json', ...args)).json() as Document[])[1]!['document']
    expect(await own()).not.toHaveProperty('note')
    expect(await own('--payload')).toHaveProperty('note', 'own')
    expect(await run('order', '--filter', '{"note": "own"}')).toMatchObject({
      code: 2,
      err: expect.stringContaining('expected a filter with a value of customer'),
    })
  })
})
