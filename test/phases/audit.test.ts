import { describe, expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { Audit, type AuditEntry, OwnerClient, silentLogger } from '../../src/index.js'
import { forgetOldest } from '../../src/phases/events/audit.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, replicaOf, things, thingWith } from '../support/thing.js'

const database = useDatabase()
const parking = thingWith(async (_doc, step) => step.park('no tape'))
const owner = (db = database.db) => new OwnerClient(db, parking.model)
const audit = { by: 'ana', reason: 'ticket 4711' }
const entries = (): Promise<readonly AuditEntry[]> => new Audit(database.db).list()

describe('the audit of what owners do', () => {
  test('says who did what, why, what it was before and after; the newest first', async () => {
    const things_ = owner()
    await things_.insert({ _id: 'a' }, { audit })
    const replica = replicaOf(database.db, parking, { logger: silentLogger })
    await replica.runOnce()
    expect(await things_.unpark('a', { audit })).toBe('done')
    expect(await things_.setState('a', 'Deleted', { audit })).toBe('done')
    expect(await things_.setState('a', 'Deleted', { audit })).toBe('unchanged')
    expect(await things_.pause({ phase: 'Creating', by: 'ana', reason: 'no ink', audit: true })).toBe('done')
    expect(await things_.resume({ phase: 'Creating', audit })).toBe(true)
    expect(await things_.remove('a', { audit })).toBe('done')
    expect(await things_.remove('a', { audit })).toBe('notFound')
    const found = await entries()
    expect(found.map(({ action, outcome }) => [action, outcome])).toEqual([
      ['remove', 'refused'],
      ['remove', 'done'],
      ['resume', 'done'],
      ['pause', 'done'],
      ['set-state', 'unchanged'],
      ['set-state', 'done'],
      ['unpark', 'done'],
      ['insert', 'done'],
    ])
    expect(found[6]).toEqual({
      ...{ at: expect.any(Date), by: 'ana', why: 'ticket 4711', action: 'unpark', lifecycle: 'thing', document: 'a' },
      before: { phase: 'Creating', lockedAt: new Date('9999-12-31T00:00:00Z'), attempts: 0 },
      after: { lockedAt: new Date(0), attempts: 0 },
      outcome: 'done',
    })
    expect(found[5]).toMatchObject({ before: { phase: 'Creating' }, after: { state: 'Deleted' } })
    expect(found[3]).toMatchObject({
      why: 'no ink',
      target: 'thing, phase Creating',
      after: { pauses: [{ what: 'phase' }] },
    })
    expect(found[0]).toMatchObject({ problem: 'notFound' })
    expect(await new Audit(database.db).list({ documents: ['a'], action: 'unpark' })).toHaveLength(1)
    expect(await new Audit(database.db).list({ by: 'ben' })).toEqual([])
    const { at } = found[2]!
    expect(await new Audit(database.db).list({ since: at, limit: 2 })).toHaveLength(2)
    await replica.stop()
  })

  test('is not written, nor anything read for it, where nobody asked for it', async () => {
    const client = new MongoClient(database.uri, { monitorCommands: true })
    const commands: string[] = []
    client.on('commandStarted', ({ commandName, command }) => commands.push(`${commandName} ${command[commandName]}`))
    const quiet = owner(client.db(database.db.databaseName))
    await quiet.insert({ _id: 'a' })
    await quiet.wake('a')
    await quiet.setState('a', 'Deleted')
    await quiet.flush()
    await client.close()
    expect(commands.filter((command) => / (Thing|phaselock\.audit)$/.test(command))).toEqual([
      'insert Thing',
      'update Thing',
      'update Thing',
    ])
    expect(await entries()).toEqual([])
  })

  test('an action that is interrupted leaves an entry whose outcome is unknown; one whose entry cannot be stored is not done', async () => {
    await owner().insert({ _id: 'a' }, { audit })
    const db = database.db
    const { wait, open } = gate()
    const dying = new Proxy(db, {
      get(target, name) {
        if (name !== 'collection') return Reflect.get(target, name)
        return (called: string, ...more: never[]) => {
          const collection = target.collection(called, ...more)
          if (called === 'Thing')
            collection.updateOne = (async () => {
              await wait
              throw new Error('killed')
            }) as never
          return collection
        }
      },
    })
    const killed = owner(dying)
      .wake('a', { audit })
      .catch(() => undefined)
    await eventually(async () => expect(await entries()).toHaveLength(2))
    const found = await entries()
    expect(found[0]).toMatchObject({ action: 'wake', document: 'a', outcome: 'unknown' })
    expect(found[0]).not.toHaveProperty('after')
    open()
    await killed

    await db.collection('phaselock.audit').drop()
    await db.createCollection('phaselock.audit', { validator: { never: true } })
    const before = await things(db).findOne({ _id: 'a' })
    await expect(owner().setState('a', 'Deleted', { audit })).rejects.toThrow(/validation/)
    expect(await things(db).findOne({ _id: 'a' })).toEqual(before)
  })

  test('has an end: beyond so many entries the oldest go', async () => {
    for (const _id of ['a', 'b', 'c', 'd', 'e']) {
      await owner().insert({ _id }, { audit })
      await new Promise((resolve) => setTimeout(resolve, 2)) // by the server's clock each is later than the one before
    }
    await forgetOldest(database.db.collection('phaselock.audit'), 3)
    expect((await entries()).map(({ document }) => document)).toEqual(['e', 'd', 'c'])
    await forgetOldest(database.db.collection('phaselock.audit'), 3)
    expect(await entries()).toHaveLength(3)
  })

  test('expires; its entries stay small; what cannot be an entry is refused before anything is done', async () => {
    await owner().insert({ _id: 'x'.repeat(9_000) }, { audit: { ...audit, keepFor: '2h' } })
    const [stored] = await database.db.collection('phaselock.audit').find().toArray()
    expect(stored!['expiresAt'].getTime() - stored!['at'].getTime()).toBe(2 * 3_600_000)
    expect(await database.db.collection('phaselock.audit').indexes()).toContainEqual(
      expect.objectContaining({ key: { expiresAt: 1 }, expireAfterSeconds: 0 }),
    )
    const refused: [object, string][] = [
      [{ by: '' }, 'expected a name'],
      [{ by: 'a', why: 'rain' }, 'expected reason, got why: it is called reason now'],
      [{ by: 'a', reason: 'x'.repeat(501) }, 'at most 500'],
      [{ by: 'a'.repeat(201) }, 'at most 200'],
      [{ by: 'a', who: 'b' }, 'who'],
      [{ by: 'a', keepFor: '1s' }, 'keepFor'],
    ]
    for (const [given, problem] of refused)
      await expect(owner().insert({ _id: 'b' }, { audit: given as never })).rejects.toThrow(problem)
    expect(await things(database.db).findOne({ _id: 'b' })).toBeNull()
  })
})
