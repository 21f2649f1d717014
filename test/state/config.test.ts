import { describe, expect, test } from '@jest/globals'
import { Binary, BSONSymbol, Code, Decimal128, Double, Int32, Long, ObjectId, Timestamp } from 'mongodb'
import * as v from 'valibot'
import {
  CONFIG_COLLECTION,
  ConfigStore,
  type ConfigStoreOptions,
  defineConfig,
} from '../../packages/state/src/config/index.js'
import { listConfigs } from '../../packages/state/src/config/versions.js'
import { lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'

const mail = defineConfig({
  name: 'mail',
  schema: v.object({ host: v.string(), port: v.optional(v.number(), 587) }),
  initial: { host: 'localhost' },
})
/** As the next version of the app defines it. */
const laterMail = defineConfig({
  name: 'mail',
  schema: v.object({ host: v.string(), port: v.union([v.number(), v.literal('auto')]) }),
  initial: { host: 'localhost', port: 'auto' },
})
const ana = { by: 'ana', reason: 'the new relay' }

describe('ConfigStore', () => {
  const ends = useEnds()
  const database = useDatabase()
  const opened = async (options: Partial<ConfigStoreOptions> = {}) => {
    const store = new ConfigStore({ db: database.db, configs: [mail], ...options })
    await store.start()
    ends.push(() => store.stop())
    return store
  }

  test('has the initial value, with the defaults of the schema, until one is stored', async () => {
    const config = await opened()
    expect(config.get(mail)).toEqual({ host: 'localhost', port: 587 })
    expect(config.versionOf(mail)).toBe(0)
    expect(await config.history(mail)).toEqual([])
    expect(await database.db.collection(CONFIG_COLLECTION).countDocuments()).toBe(0)

    const stored = await config.set(mail, { host: 'smtp' }, ana)
    expect(stored).toEqual({ version: 1, value: { host: 'smtp' }, at: expect.any(Date), ...ana })
    expect(config.get(mail)).toEqual({ host: 'smtp', port: 587 })
  })

  test('takes over the changes of another process, and notifies its listeners once each', async () => {
    const [one, other] = [await opened(), await opened()]
    const heard: unknown[] = []
    other.onChange(mail, (value) => heard.push(value))
    await one.set(mail, { host: 'a' }, ana)
    await eventually(() => expect(other.get(mail)).toEqual({ host: 'a', port: 587 }))
    const same = other.get(mail)
    expect(other.get(mail)).toBe(same)
    await one.set(mail, { host: 'b', port: 25 }, ana)
    await eventually(() => expect(other.versionOf(mail)).toBe(2))
    expect(heard).toEqual([
      { host: 'a', port: 587 },
      { host: 'b', port: 25 },
    ])
  })

  test('takes over a change without the doorbell, with its next look', async () => {
    const [one, other] = [await opened({ doorbell: false }), await opened({ doorbell: false })]
    const heard = new Promise((resolve) => other.onChange(mail, resolve))
    await one.set(mail, { host: 'a' }, ana)
    expect(await heard).toEqual({ host: 'a', port: 587 })
  })

  test('of ten changes on the base of one version, one is stored; without a base all are, one version each', async () => {
    const stores = await Promise.all(Array.from({ length: 10 }, () => opened()))
    for (const expectVersion of [0, 1]) {
      const changes = stores.map((one, i) => one.set(mail, { host: `h${i}` }, { by: `p${i}`, expectVersion }))
      const results = await Promise.allSettled(changes)
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      for (const result of results)
        if (result.status === 'rejected')
          expect(String(result.reason)).toMatch(`mail: expected version ${expectVersion} to be stored, got version`)
    }
    await Promise.all(stores.map((one, i) => one.set(mail, { host: `all${i}` }, { by: `p${i}` })))
    const versions = (await stores[0]!.history(mail)).map(({ version }) => version)
    expect(versions).toEqual(Array.from({ length: 12 }, (_, i) => 12 - i))
  })

  test('keeps 50 versions, and rolls back to one of them as the next version', async () => {
    const config = await opened()
    for (let i = 1; i <= 60; i += 1) await config.set(mail, { host: `h${i}` }, { by: 'ana' })
    const history = await config.history(mail)
    expect([history.length, history[0]!.version, history.at(-1)!.version]).toEqual([50, 60, 11])
    await config.rollBack(mail, { by: 'bo' })
    await config.rollBack(mail, { by: 'bo', to: 12, reason: 'bounces' })
    const [last, before] = await config.history(mail)
    expect(before).toMatchObject({ version: 61, value: { host: 'h59' }, reason: 'back to version 59', by: 'bo' })
    expect(last).toMatchObject({ version: 62, value: { host: 'h12' }, reason: 'bounces' })
    await expect(config.rollBack(mail, { by: 'bo', to: 3 })).rejects.toThrow(
      'mail: expected an earlier version that is kept, got 3; kept are 13 to 61',
    )
  })

  test('refuses what its schema refuses, and what would not come back as it went in; nothing is stored', async () => {
    const config = await opened()
    await expect(config.set(mail, { host: 1 }, ana)).rejects.toMatchObject({
      name: 'InvalidConfig',
      issues: ['host: Invalid type: Expected string but received 1'],
    })
    const any = defineConfig({ name: 'any', schema: v.any(), initial: null })
    const loose = await opened({ configs: [any] })
    const bad: [unknown, string][] = [
      [
        { a: [1, undefined] },
        'any: value.a[1]: expected a value that can be stored, got undefined; leave it out, or use null',
      ],
      [{ a: () => 1 }, 'any: value.a: expected'],
      [new Map(), 'got a Map'],
      [{ at: new Date(Number.NaN) }, 'any: value.at: expected a date, got an invalid one'],
      // BSON's classes that come back as numbers, strings or other classes.
      ...[
        Long.fromNumber(5),
        new Int32(5),
        new Double(5),
        new BSONSymbol('a'),
        Timestamp.fromBits(1, 2),
        new Code('1'),
      ].map((one): [unknown, string] => [
        { a: [one] },
        `any: value.a[0]: expected a plain object, an array, a Date or an ObjectId, got a`,
      ]),
      [{ a: Buffer.from('x') }, 'a Date or an ObjectId, got a Buffer; it would come back as something else'],
      [{ a: new Binary(Buffer.from('x')) }, 'got a Binary'],
      [{ a: 5n }, 'any: value.a: expected a number, got the bigint 5; store it as text'],
      [{ a: '\ud800' }, 'any: value.a: expected text, got half of a surrogate pair in it'],
      [{ $ref: 'a', $id: 1 }, 'any: value: expected an object without both $ref and $id'],
      [{ a: 'x'.repeat(300_000) }, 'any: expected at most 262144 bytes, got 300'],
    ]
    for (const [value, problem] of bad) await expect(loose.set(any, value, ana)).rejects.toThrow(problem)
    await expect(loose.set(any, 1, { by: '' })).rejects.toThrow('by: expected the author of the change')
    expect(await database.db.collection(CONFIG_COLLECTION).countDocuments()).toBe(0)
    const value = {
      ...{ at: new Date(5), text: '$$NOW', list: [{ n: '123' }], none: null, id: new ObjectId(), zero: -0 },
      ...{ price: Decimal128.fromString('1.50'), $set: { 'a.b': 1 }, 'c.d': '$at', large: 2 ** 40 },
    }
    await loose.set(any, value, ana)
    expect(loose.get(any)).toStrictEqual(value)
    await loose.set(any, 1, ana)
    expect((await loose.history(any)).map((version) => version.value)).toStrictEqual([1, value])
    let deep: unknown = 1
    for (let level = 0; level < 99; level += 1) deep = { deep }
    await loose.set(any, deep, ana)
    expect(loose.get(any)).toStrictEqual(deep)
  })

  test('a value that the schema of this version refuses is not taken over, and everything that shows the state says so', async () => {
    const older = await opened({ name: 'api-1' })
    const newer = await opened({ name: 'api-2', configs: [laterMail] })
    await older.set(mail, { host: 'a', port: 25 }, ana)
    await eventually(() => expect(newer.versionOf(laterMail)).toBe(1))
    await newer.set(laterMail, { host: 'b', port: 'auto' }, ana)
    await eventually(() => expect(older.problems()).toHaveLength(1))
    expect(older.get(mail)).toEqual({ host: 'a', port: 25 })
    const problem = `config mail: version 2 is refused by the schema here (port: Invalid type: Expected number but received "auto"); version 1 stays in force`
    expect(older.problems()).toEqual([problem])
    expect(newer.problems()).toEqual([])
    const refusals = async () => (await listConfigs({ db: database.db })).flatMap(({ refused }) => refused)
    await eventually(async () => expect(await refusals()).toMatchObject([{ by: 'api-1', version: 2 }]))

    // A process that starts with the older schema takes the newest version that this accepts.
    const restarted = await opened({ name: 'api-3' })
    expect(restarted.get(mail)).toEqual({ host: 'a', port: 25 })

    await newer.set(laterMail, { host: 'c', port: 26 }, ana)
    await eventually(() => expect(older.problems()).toEqual([]))
    expect(older.get(mail)).toEqual({ host: 'c', port: 26 })
    expect(await refusals()).toEqual([])
  })

  test('environments are apart; an initial value that its schema refuses fails the start', async () => {
    const [live, staging] = [await opened(), await opened({ environment: 'staging' })]
    await live.set(mail, { host: 'live' }, ana)
    await staging.set(mail, { host: 'staging' }, { ...ana, expectVersion: 0 })
    expect([live.get(mail).host, staging.get(mail).host]).toEqual(['live', 'staging'])
    const bad = defineConfig({ name: 'bad', schema: v.number(), initial: 'x' })
    await expect(opened({ configs: [bad] })).rejects.toThrow('bad: expected a value that its schema accepts; initial: ')
  })

  test('refuses unknown options, schemas that are none, and a read before the start', () => {
    expect(() => defineConfig({ name: 'a b', schema: {} as never, initial: 1, other: 1 } as never)).toThrow(
      /expected name, schema and initial, got also other; name: expected 1 to 200 letters.* got "a b"; schema: expected one of Standard Schema/,
    )
    expect(() => new ConfigStore({ db: database.db, configs: [mail, mail], what: 1 } as never)).toThrow(
      /unknown option 'what'; known: db, .*; configs: expected names that differ, got mail twice/,
    )
    const config = new ConfigStore({ db: database.db, configs: [mail] })
    expect(() => config.get(mail)).toThrow('expected start() to have ended before mail is read')
  })

  test('a replica that works alongside shows the problems, and is ready all the same', async () => {
    const config = await opened({ configs: [mail] })
    await (await opened({ configs: [laterMail] })).set(laterMail, { host: 'b', port: 'auto' }, ana)
    await eventually(() => expect(config.problems()).toHaveLength(1))
    const order = lifecycleOf().define({ name: 'order', collection: 'Order', phases: { Sent: { rest: true } } })
    const lifecycles = [order.handle({})]
    const replica = new Replica({ db: database.db, lifecycles, alongside: [config.alongside], logger: silentLogger })
    await replica.start()
    ends.push(() => replica.stop())
    await eventually(() => expect(replica.status().problems).toEqual(config.problems()))
    expect(replica.status().notReady).toEqual([])
    await replica.stop()
    expect(replica.status().problems).toEqual([])
  })

  test('values stay readable after stop(), and a second start() goes on with what is stored', async () => {
    const other = defineConfig({ name: 'other', schema: v.number(), initial: 7 })
    const config = await opened({ configs: [mail, other] })
    await config.set(mail, { host: 'a' }, ana)
    await config.stop()
    expect([config.get(mail).host, config.get(other)]).toEqual(['a', 7])
    await config.start()
    expect([config.get(mail).host, config.versionOf(mail), config.get(other)]).toEqual(['a', 1, 7])
  })

  test('of the versions between two looks the newest that the schema accepts is in force, everywhere', async () => {
    const [older, newer] = [await opened({ doorbell: false }), await opened({ configs: [laterMail] })]
    await older.set(mail, { host: 'v1' }, ana)
    await older.stop()
    await newer.set(laterMail, { host: 'v2', port: 2 }, ana)
    await newer.set(laterMail, { host: 'v3', port: 3 }, ana)
    await newer.set(laterMail, { host: 'v4', port: 'auto' }, ana)
    await older.start()
    expect([older.get(mail).host, older.versionOf(mail)]).toEqual(['v3', 3])
    expect((await opened()).versionOf(mail)).toBe(3)
  })

  test('rolls back to no value that its schema refuses', async () => {
    const [older, newer] = [await opened(), await opened({ configs: [laterMail] })]
    await newer.set(laterMail, { host: 'a', port: 'auto' }, ana)
    await newer.set(laterMail, { host: 'b', port: 25 }, ana)
    await expect(older.rollBack(mail, { by: 'bo' })).rejects.toMatchObject({ name: 'InvalidConfig', config: 'mail' })
    expect((await older.history(mail))[0]!.version).toBe(2)
    expect(await newer.rollBack(laterMail, { by: 'bo' })).toMatchObject({ version: 3, value: { port: 'auto' } })
  })

  test('a listener that throws or rejects is logged, and the others are called', async () => {
    const lines: string[] = []
    const warn = (message: string, details?: object) => void lines.push(`${message} ${JSON.stringify(details)}`)
    const config = await opened({ logger: { info: () => undefined, warn } })
    config.onChange(mail, () => {
      throw new Error('thrown')
    })
    config.onChange(mail, async () => {
      throw new Error('rejected')
    })
    const heard: unknown[] = []
    config.onChange(mail, ({ host }) => heard.push(host))
    await config.set(mail, { host: 'a' }, ana)
    await eventually(() => expect(lines).toHaveLength(2))
    expect(lines).toEqual(
      ['thrown', 'rejected'].map((why) => `config mail: a listener has thrown {"error":"Error: ${why}"}`),
    )
    expect(heard).toEqual(['a'])
  })
})
