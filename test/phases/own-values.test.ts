import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { wire } from '../../src/phases/threads/messages.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'

/** With a field of that very name, as JSON and BSON can have one; in a literal it would set the prototype. */
const withProto = () => JSON.parse('{ "__proto__": { "isAdmin": true, "list": [1] }, "a": 1 }') as Document
const ownProto = (value: Document) => Object.getOwnPropertyDescriptor(value, '__proto__')?.value

describe("a handler's own values", () => {
  const database = useDatabase()
  const read = async (id = 'a') => (await things(database.db).findOne({ _id: id })) as Document

  async function run(handler: (doc: any, step: any) => Promise<unknown>, document: Document = {}) {
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', ...document })
    await replicaOf(database.db, thingWith(handler as never)).runOnce()
    return await read()
  }

  test('a field "__proto__" of a document is a field, and nothing is inherited from it', async () => {
    let seen: any
    const found = await run(
      async (doc, step) => {
        seen = doc
        return step.moveTo('Created')
      },
      { box: withProto(), ...withProto() },
    )
    for (const object of [seen, seen.box]) {
      expect(object.isAdmin).toBeUndefined()
      expect(Object.getPrototypeOf(object)).toBe(Object.prototype)
      expect(ownProto(object)).toEqual({ isAdmin: true, list: [1] })
    }
    expect(ownProto(found)).toEqual({ isAdmin: true, list: [1] })
  })

  test.each(['again', 'checkpoint'])(
    'a field "__proto__" of a set is stored, and is one for the next step: %s',
    async (by) => {
      const seen: any[] = []
      const found = await run(async (doc, step) => {
        seen.push(doc)
        if (seen.length === 2) return step.moveTo('Created')
        if (by === 'checkpoint') await step.checkpoint({ ...withProto(), box: withProto() })
        return step.again(by === 'again' ? { set: { ...withProto(), box: withProto() } } : {})
      })
      for (const object of [seen[1], seen[1].box, found, found['box']]) {
        expect(object.isAdmin).toBeUndefined()
        expect(Object.getPrototypeOf(object)).toBe(Object.prototype)
        expect(ownProto(object)).toEqual({ isAdmin: true, list: [1] })
      }
      // A copy, as everything that a handler is given.
      ownProto(seen[1]).list.push('x')
      expect(ownProto(found)).toEqual({ isAdmin: true, list: [1] })
    },
  )

  test.each(['again', 'checkpoint'])('undefined in a set removes the field, for the next step too: %s', async (by) => {
    const seen: Document[] = []
    const set = { gone: undefined, kept: { inner: undefined } }
    const found = await run(
      async (doc, step) => {
        seen.push(doc)
        if (seen.length === 2) return step.moveTo('Created', { set: { last: undefined } })
        if (by === 'checkpoint') await step.checkpoint(set)
        return step.again(by === 'again' ? { set } : {})
      },
      { gone: 1, last: 2 },
    )
    expect(seen[0]).toMatchObject({ gone: 1, last: 2 })
    expect(seen[1]).not.toHaveProperty('gone')
    expect(found).toMatchObject({ phase: 'Created', kept: { inner: null } })
    for (const name of ['gone', 'last']) expect(found).not.toHaveProperty(name)
  })

  test('a group in which each document removes another field: each loses its own, and no other', async () => {
    const ids = Array.from({ length: 20 }, (_, n) => `d${n}`)
    await things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating', a: 1, b: 1 })))
    const handler = async ({ _id }: Document, step: any) =>
      step.moveTo('Created', { set: Number(_id.slice(1)) % 2 ? { a: undefined } : { b: undefined, c: _id } })
    await replicaOf(database.db, thingWith(handler as never)).runOnce()
    for (const [n, _id] of ids.entries()) {
      const { a, b, c } = await read(_id)
      expect({ a, b, c }).toEqual(n % 2 ? { a: undefined, b: 1, c: undefined } : { a: 1, b: undefined, c: _id })
    }
  })

  test('undefined in a set on its way between threads', () => {
    const fields = wire.fields(wire.encodeSet({ gone: undefined, none: null, box: { inner: undefined } }))
    expect(Object.entries(fields)).toEqual([
      ['gone', undefined],
      ['none', null],
      ['box', { inner: null }],
    ])
  })

  test('a field "__proto__" on its way between threads', () => {
    const fields = wire.fields(wire.encodeSet({ ...withProto(), box: withProto() }))
    for (const object of [fields, fields['box']] as Document[]) {
      expect(Object.getPrototypeOf(object)).toBe(Object.prototype)
      expect(ownProto(object)).toEqual({ isAdmin: true, list: [1] })
    }
  })

  test('step.progress is a copy: what a handler does to it reaches neither the engine nor the next step', async () => {
    const seen: unknown[] = []
    const found = await run(
      async (_doc, step) => {
        seen.push(structuredClone({ ...step.progress, history: undefined, at: undefined }))
        expect(step.progress).toBe(step.progress)
        step.progress.since.setTime(0)
        step.progress.claims = 99
        step.progress.attempts = 18
        step.progress.step = 'mine'
        step.progress.percent.done = 100
        if (seen.length === 1) return step.again()
        if (seen.length === 2) throw new Error('once')
        return step.moveTo('Created')
      },
      { progress: { percent: { done: 40 } } },
    )
    expect(seen).toHaveLength(2)
    expect(seen[1]).toEqual({ ...(seen[0] as object), claims: 1, attempts: 0 })
    expect(found['progress']).toMatchObject({ attempts: 1, percent: { done: 40 } })
    expect(found['progress'].since.getTime()).toBeGreaterThan(0)
    expect(found['progress']).not.toHaveProperty('step')
  })
})
