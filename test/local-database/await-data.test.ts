import { describe, expect, test } from '@jest/globals'
import { BSON } from 'mongodb'
import { AwaitData } from '../../packages/local-database/src/engine/await-data.js'
import { collectionName } from '../../packages/local-database/src/engine/wire-frames.js'

/** A command as it comes over the wire. */
function message(body: object): Buffer {
  const bytes = Buffer.concat([Buffer.alloc(21), BSON.serialize(body)])
  bytes.writeInt32LE(2013, 12)
  return bytes
}

const reply = (entries: number) => ({ requestId: 1, response: Buffer.alloc(entries) })
const isIdle = ({ response }: { response: Buffer }) => response.length === 0

/** A getMore on `log` that waits, and how often the engine was asked. */
function waiting(awaitData: AwaitData, entries: () => number, maxMs = 60_000) {
  const state = { looks: 0 }
  const gone = new AbortController()
  const look = async () => {
    state.looks += 1
    return reply(entries())
  }
  const answer = awaitData.answer('log', maxMs, look, isIdle, gone.signal)
  return { state, gone, answer }
}

describe('a getMore that waits for data', () => {
  test('is answered when its collection is written, and looks at nothing before', async () => {
    const awaitData = new AwaitData()
    let entries = 0
    const { state, answer } = waiting(awaitData, () => entries)
    await Promise.resolve()
    awaitData.executed('insert', message({ insert: 'another', $db: 'x' }))
    awaitData.executed('find', message({ find: 'log', $db: 'x' }))
    awaitData.executed('aggregate', message({ aggregate: 'log', pipeline: [], $db: 'x' }))
    await new Promise((resolve) => setImmediate(resolve))
    expect(state.looks).toBe(1)
    entries = 3
    awaitData.executed('insert', message({ insert: 'log', $db: 'x' }))
    expect((await answer).response).toHaveLength(3)
    expect(state.looks).toBe(2)
  })

  test('misses no write that comes while the engine looks', async () => {
    const awaitData = new AwaitData()
    let written = false
    const look = async () => {
      const before = written
      written = true
      awaitData.executed('insert', message({ insert: 'log', $db: 'x' }))
      return reply(before ? 1 : 0)
    }
    const answered = await awaitData.answer('log', 60_000, look, isIdle, new AbortController().signal)
    expect(answered.response).toHaveLength(1)
  })

  test.each([
    ['drop', { drop: 'another' }],
    ['killCursors', { killCursors: 'log', cursors: [] }],
    ['bulkWrite', { bulkWrite: 1 }],
    ['aggregate', { aggregate: 'another', pipeline: [{ $merge: { into: 'log' } }] }],
  ])('looks again after %s %j', async (name, body) => {
    const awaitData = new AwaitData()
    let entries = 0
    const { answer } = waiting(awaitData, () => entries)
    await new Promise((resolve) => setImmediate(resolve))
    entries = 1
    awaitData.executed(name, message({ ...body, $db: 'x' }))
    expect((await answer).response).toHaveLength(1)
  })

  test('ends when its time is over, and when its client has hung up', async () => {
    const awaitData = new AwaitData()
    expect((await waiting(awaitData, () => 0, 5).answer).response).toHaveLength(0)
    const { gone, answer } = waiting(awaitData, () => 0)
    gone.abort()
    expect((await answer).response).toHaveLength(0)
  })
})

test('a command names its collection first, or none', () => {
  expect(collectionName(message({ insert: 'phaselock.doorbell', ordered: true, $db: 'x' }))).toBe('phaselock.doorbell')
  expect(collectionName(message({ dropDatabase: 1, $db: 'x' }))).toBe('')
})
