import { describe, expect, jest, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { TcpProxy } from '../support/tcp-proxy.js'
import { idOf, ordersWith, parcelsWith, useChildren } from './children-fixture.js'

jest.setTimeout(60_000)

type Body = Record<string, any>
const isInsertion = ({ name, body }: { name: string; body: Body }) =>
  name === 'aggregate' && (body['pipeline'] ?? []).some((stage: Body) => '$merge' in stage)
const storesNumber = ({ name, body }: { name: string; body: Body }) =>
  name === 'update' && JSON.stringify(body).includes('"children"')

describe('children, where a connection breaks', () => {
  const { database, parcels, stored, insert, prepared, pass } = useChildren()

  test.each([
    ['before they are inserted', 'cutBefore', isInsertion],
    ['after they were inserted', 'cutAfter', isInsertion],
    ['before their number is stored', 'cutBefore', storesNumber],
    ['after their number was stored', 'cutAfter', storesNumber],
  ] as const)('%s: each is inserted once, and counted once', async (_when, how, matching) => {
    const proxy = await TcpProxy.start(database.uri)
    const client = await new MongoClient(proxy.uri, { retryWrites: false, retryReads: false }).connect()
    try {
      const { lifecycle } = ordersWith()
      await prepared([parcelsWith()])
      const replica = await prepared([lifecycle, parcelsWith()], { db: client.db(database.db.databaseName) })
      await insert(['left', 'right'])
      const cut = proxy[how](matching)
      await replica.runOnce()
      await cut
      for (let i = 0; i < 4; i += 1) {
        await pass(61_000)
        await replica.runOnce()
      }
      expect(await stored()).toMatchObject({ phase: 'Shipped', ended: '2 of 2 children have ended' })
      expect((await stored())['progress'].children).toEqual([{ list: 'Shipping', lifecycle: 'parcel', total: 2 }])
      expect((await parcels().distinct('_id')).sort()).toEqual([idOf('left'), idOf('right')])
      for (const { progress } of await parcels().find().toArray())
        expect(progress.history.filter(({ outcome }: Body) => outcome === 'moveTo')).toHaveLength(1)
      await replica.stop()
    } finally {
      await client.close()
      await proxy.stop()
    }
  })
})
