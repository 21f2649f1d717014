import { expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { protocolClient, protocolClientOptions } from '../../src/database/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import {
  backDate,
  recordingLogger,
  recordingObserver,
  replicaOf,
  ShiftedClock,
  thingOf,
  things,
  thingWith,
} from '../support/thing.js'
import { refuseUnhandledRejections } from './unhandled.js'

const database = useDatabase()
refuseUnhandledRejections()

test('an outcome that the server goes on failing to take: told, its step is repeated, and never parked for it', async () => {
  const proxy = await TcpProxy.start(database.uri)
  const client = await protocolClient(proxy.uri, protocolClientOptions(30_000)).connect()
  const clock = new ShiftedClock()
  const observer = recordingObserver()
  const logger = recordingLogger()
  const ran: string[] = []
  const lifecycle = thingOf({ lockTimeout: '2s', maxClaims: 2 })
  const replica = replicaOf(
    client.db(database.db.databaseName),
    thingWith(async (doc, step) => {
      ran.push(doc._id)
      return step.moveTo('Created')
    }, lifecycle),
    { renewalDb: database.db, clock, observer, logger },
  )
  const isOdd = ({ name, body }: { name: string; body: Document }) =>
    name === 'update' && /"odd".*"outcome":\{"\$literal":"moveTo"\}/.test(JSON.stringify(body))
  try {
    await replica.prepare()
    proxy.answerAll((command) =>
      isOdd(command) ? { ok: 0, code: 8, codeName: 'UnknownError', errmsg: 'not this one' } : undefined,
    )
    await things(database.db).insertMany(['odd', ...'abc'].map((_id) => ({ _id, phase: 'Creating' })))
    for (let round = 1; round <= 4; round += 1) {
      await replica.tick()
      await eventually(() => expect(ran.filter((id) => id === 'odd')).toHaveLength(round))
      await eventually(async () => expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(3))
      await eventually(() => expect(replica.status().held).toBe(1))
      const before = proxy.seen.filter(isOdd).length
      await eventually(() => expect(proxy.seen.filter(isOdd).length).toBeGreaterThan(before + 4))
      clock.advance(11_000)
      await eventually(() => expect(observer.losses).toHaveLength(round))
      await eventually(async () =>
        expect(await things(database.db).findOne({ _id: 'odd' })).toMatchObject({
          phase: 'Creating',
          progress: { claims: 0 },
          lockedBy: expect.any(String),
        }),
      )
      expect(replica.status().held).toBe(0)
      await backDate(database.db, 'odd', 31_000)
    }
    expect(new Set(observer.losses.map(({ how }) => how))).toEqual(new Set(['givenUp']))
    expect(logger.lines.map(({ message }) => message)).toContainEqual(
      expect.stringMatching(/^lease lost \(givenUp\): .*through no fault of the document.*: not this one$/),
    )
    proxy.pass()
    await replica.tick()
    await eventually(async () =>
      expect(await things(database.db).findOne({ _id: 'odd' })).toMatchObject({ phase: 'Created' }),
    )
    expect(ran).toHaveLength(3 + 5)
  } finally {
    await replica.stop()
    await client.close()
    await proxy.stop()
  }
})
