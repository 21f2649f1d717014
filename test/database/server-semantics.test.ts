import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { type Document, Long, MongoClient } from 'mongodb'
import { NotMongoDB, requireServerSemantics } from '../../src/database/server-semantics.js'
import { Replica } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { thingWith } from '../support/thing.js'

const database = useDatabase()
let proxy: TcpProxy
let client: MongoClient

beforeEach(async () => {
  proxy = await TcpProxy.start(database.uri)
  client = await new MongoClient(proxy.uri).connect()
})
afterEach(async () => {
  await client.close()
  await proxy.stop()
})

const db = () => client.db(database.db.databaseName)
const bound = thingWith(async (_doc, step) => step.moveTo('Created'))
const probed = { _id: 'thing', probe: { at: new Date(), n: 2, was: 1 } }
const found = (...firstBatch: Document[]) => ({ ok: 1, cursor: { id: Long.ZERO, ns: 'x.y', firstBatch } })
const updated = (probe: object) => ({ ok: 1, value: { _id: 'thing', probe }, lastErrorObject: { n: 1 } })

/** What a server answers that only looks like MongoDB, for the first of its commands that this is about. */
type Answers = (name: string, body: Document) => Document | undefined
const toFind =
  (part: string, reply: Document): Answers =>
  (name, body) =>
    name === 'find' && JSON.stringify(body).includes(part) ? reply : undefined
const toUpdate =
  (reply: Document): Answers =>
  (name, body) =>
    name === 'findAndModify' && Array.isArray(body['update']) ? reply : undefined

describe('a server that only looks like MongoDB', () => {
  test.each<[problem: string, Answers]>([
    ["doesn't find what it must find", toFind('86400000', found())],
    ['finds what it must not find', toFind('-86400000', found(probed))],
    ['a query for dates finds a number', toFind('"probe.n"', found(probed))],
    ['the hint of an index that is not there is ignored', toFind('phaselock_no_such_index', found(probed))],
    ['something else than a date for $$NOW', toUpdate(updated({ at: '$$NOW', n: 2, was: 1 }))],
    ["doesn't do its stages in order", toUpdate(updated({ at: new Date(), n: 2, was: 2 }))],
    [
      'refused (no pipelines here)',
      toUpdate({ ok: 0, code: 238, codeName: 'NotImplemented', errmsg: 'no pipelines here' }),
    ],
  ])('… %s: a replica refuses to start on it, and claims nothing', async (problem, answers) => {
    await database.db.collection('Thing').insertOne({ phase: 'Creating' })
    proxy.answerAll(({ name, body }) => answers(name, body))
    const replica = new Replica({ db: db(), lifecycles: [bound] })
    const error = await replica.start().catch((thrown: unknown) => thrown)
    proxy.pass()
    await replica.stop()
    expect(error).toBeInstanceOf(NotMongoDB)
    expect(String(error)).toContain(problem)
    expect(await database.db.collection('Thing').countDocuments({ lockedAt: { $exists: true } })).toBe(0)
  })
})

test('an error that says nothing about what the server is stays what it is', async () => {
  const refusal = { ok: 0, code: 13, codeName: 'Unauthorized', errmsg: 'not authorized' }
  proxy.answer('findAndModify', refusal)
  await expect(requireServerSemantics(db().collection('Probed'), 'thing')).rejects.toMatchObject({ code: 13 })
})

test('MongoDB does all of it, for many at once', async () => {
  const collection = database.db.collection<Document & { _id: string }>('Probed')
  await collection.insertOne({ _id: 'thing' })
  await Promise.all(Array.from({ length: 20 }, () => requireServerSemantics(collection, 'thing')))
})
