import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { type Collection, MongoClient, MongoNetworkError } from 'mongodb'
import mongoose from 'mongoose'
import { alwaysAnswering, NoAnswer } from '../../src/database/answer.js'
import { isDefiniteRefusal } from '../../src/lock/documents/write.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { refuseUnhandledRejections } from './unhandled.js'

describe('a driver that neither answers nor fails', () => {
  const database = useDatabase()
  refuseUnhandledRejections()
  let proxy: TcpProxy
  let client: MongoClient
  let collection: Collection

  beforeEach(async () => {
    proxy = await TcpProxy.start(database.uri)
    client = await new MongoClient(proxy.uri, { retryReads: false, retryWrites: false }).connect()
    await database.db.collection('Thing').insertOne({ n: 1 })
    collection = alwaysAnswering(client.db(database.db.databaseName).collection('Thing'), 100)
  })
  afterEach(async () => {
    await proxy.stop() // what still waits fails now, and nobody listens any more
    await client.close()
  })

  test.each<[string, () => Promise<unknown>]>([
    ['updateMany', () => collection.updateMany({}, { $inc: { n: 1 } })],
    ['findOneAndUpdate', () => collection.findOneAndUpdate({}, { $inc: { n: 1 } })],
    ['bulkWrite', () => collection.bulkWrite([{ updateMany: { filter: {}, update: { $inc: { n: 1 } } } }])],
    ['deleteMany', () => collection.deleteMany({})],
    ['find', () => collection.find({}).hint({ _id: 1 }).limit(1).toArray()],
    ['aggregate', () => collection.aggregate([{ $match: {} }]).toArray()],
  ])('%s ends with NoAnswer, and its outcome counts as unknown', async (_name, command) => {
    proxy.blackhole()
    const error = await command().catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(NoAnswer)
    expect(String(error)).toBe('NoAnswer: expected the driver to answer or fail within 600 ms, but it did neither')
    expect(isDefiniteRefusal(error)).toBe(false)
  })
})

test('an error of another copy of the driver, such as that of Mongoose, is judged like one of ours', () => {
  const { MongoNetworkError: Foreign, MongoServerError: ForeignRefusal } = mongoose.mongo
  expect(Foreign).not.toBe(MongoNetworkError)
  expect(isDefiniteRefusal(new Foreign('connection 1 closed'))).toBe(false)
  expect(isDefiniteRefusal(new ForeignRefusal({ message: 'no', code: 10107 }))).toBe(false)
  expect(isDefiniteRefusal(new ForeignRefusal({ message: 'no', code: 121 }))).toBe(true)
})
