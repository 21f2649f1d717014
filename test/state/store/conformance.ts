import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { BSON } from 'mongodb'
import type { SharedStore, SharedValues } from 'phaselock-state'
import type { StoreUnderTest } from './stores.js'

/** What each kind of store is held to, on its real server. */
export function conforms(kind: string, start: () => Promise<StoreUnderTest>): void {
  describe(`values in ${kind}`, () => {
    let under: StoreUnderTest
    let store: SharedStore
    let prefixes = 0
    const fresh = <V = unknown>(): SharedValues<V> => store.of<V>(`p${++prefixes}`, { ttl: '1h' })
    const keyOf = ({ prefix, environment }: SharedValues<never>, part: string) => `${prefix}:${environment}:${part}`

    beforeAll(async () => {
      under = await start()
      store = under.open()
    }, 240_000)
    afterAll(async () => await under?.close())

    test('what was set is there for every process, until it is set anew or deleted', async () => {
      const values = fresh<number>()
      const other = under.open().of<number>(values.prefix)
      expect(await values.get('a')).toBeUndefined()
      await values.set('a', 1)
      expect(await other.get('a')).toBe(1)
      await other.set('a', 2)
      expect(await values.get('a')).toBe(2)
      expect(await values.delete('a')).toBe(true)
      expect(await values.delete('a')).toBe(false)
      expect(await other.get('a')).toBeUndefined()
    })

    test('prefixes and environments are apart, whatever the part is', async () => {
      const values = fresh<string>()
      const staging = store.of<string>(values.prefix, { environment: 'staging' })
      const parts = ['a', 'a:b', ' a ', '{tag}', '}{', 'a*?[b]', '$x.y', 'Ключ', '%', "o'clock", 'x'.repeat(2_000)]
      for (const part of parts) {
        await values.set(part, `1${part}`)
        await staging.set(part, `2${part}`)
      }
      for (const part of parts) {
        expect(await values.get(part)).toBe(`1${part}`)
        expect(await staging.get(part)).toBe(`2${part}`)
      }
      expect(await values.getMany([...parts, 'none'])).toEqual(new Map(parts.map((part) => [part, `1${part}`])))
      expect(await values.getMany([])).toEqual(new Map())
    })

    test.each<[string, unknown]>([
      ['text that looks like a number', '123'],
      ['text that looks like JSON', '{"$date":1}'],
      ['empty text', ''],
      ['null', null],
      ['true', true],
      ['0', 0],
      ['-0', -0],
      ['a whole number beyond 32 bits', 2 ** 53 - 1],
      ['a fraction', 0.1],
      ['NaN', Number.NaN],
      ['Infinity', Number.POSITIVE_INFINITY],
      ['a bigint', 2n ** 63n - 1n],
      ['a date', new Date(1_700_000_000_123)],
      ['a date before 1970', new Date(-1)],
      ['binary', Buffer.from([0, 255, 10])],
      ['empty binary', Buffer.alloc(0)],
      ['an ObjectId', new BSON.ObjectId()],
      ['a UUID', new BSON.UUID()],
      ['a Decimal128', BSON.Decimal128.fromString('1.10')],
      ['an empty object', {}],
      ['an empty list', []],
      ['operators of MongoDB', { $set: { 'a.b': 1 }, $ref: 'x', $id: 1, _bsontype: '$$NOW', 'a\0': '' }],
      ['operators of MongoDB, with a date', { $set: { 'a.b': 1 }, $ref: 'x', _bson: new Date(0) }],
      ['fields in their order', { z: 1, a: [{ at: new Date(0), data: Buffer.from('x') }], __proto: 2 }],
      ['a field named __proto__', JSON.parse('{"__proto__": {"a": 1}}')],
    ])('%s comes back as it went in', async (_what, value) => {
      const values = fresh()
      await values.set('v', value)
      const found = await values.get('v')
      expect(found).toStrictEqual(value)
      expect(Object.keys(Object(found))).toEqual(Object.keys(Object(value)))
      expect((await values.getMany(['v'])).get('v')).toStrictEqual(value)
      expect((await values.entry('v'))?.value).toStrictEqual(value)
    })

    test('any JSON comes back as it went in', async () => {
      const values = fresh()
      await fc.assert(
        fc.asyncProperty(fc.jsonValue({ stringUnit: 'grapheme' }), async (value) => {
          await values.set('any', value)
          expect(await values.get('any')).toStrictEqual(value)
        }),
        { numRuns: 40 },
      )
    })

    test.each<[string, unknown, RegExp]>([
      ['undefined', undefined, /: value: .*got undefined/],
      ['undefined in a list', { items: [1, { price: undefined }] }, /value\.items\[1\]\.price: .*got undefined/],
      ['a gap in a list', { a: new Array(2) }, /value\.a\[0\]: .*got undefined/],
      ['a function', { 'on-end': { f: () => 1 } }, /value\["on-end"\]\.f: .*got function/],
      ['a symbol', [Symbol('x')], /value\[0\]: .*got symbol/],
      ['a Map', { m: new Map() }, /value\.m: .*got a Map/],
      ['an instance of a class', { e: new Error('x') }, /value\.e: .*got a Error/],
      ['a date without a time', [new Date(Number.NaN)], /value\[0\]: .*invalid/],
      ['half of a surrogate pair', { t: 'a\ud800' }, /value\.t: .*surrogate/],
      ['a bigint of 65 bits', 2n ** 64n, /64 bits/],
      ['a reference', { r: { $ref: 'a', $id: new Date(0) } }, /value\.r: .*\$ref and \$id/],
      ['a Long', { n: BSON.Long.fromNumber(1) }, /value\.n: .*got a Long/],
      ['a name with a zero', { 'a\0b': 1n }, /names of fields without/],
    ])('%s is refused, with its path, and nothing is stored', async (_what, value, message) => {
      const values = fresh()
      await values.set('v', 'before')
      for (const refused of [
        values.set('v', value),
        values.compareAndSet('new', null, value),
        values.getOrLoad('loaded', () => value),
      ])
        await expect(refused).rejects.toMatchObject({ name: 'InvalidValue', message: expect.stringMatching(message) })
      expect(await values.getMany(['v', 'new', 'loaded'])).toEqual(new Map([['v', 'before']]))
    })

    test('an object that contains itself is refused', async () => {
      const self: Record<string, unknown> = {}
      self['self'] = self
      await expect(fresh().set('v', self)).rejects.toThrow(/contains itself/)
    })

    test('8 MB can be stored; more is refused with the key and the size', async () => {
      const values = fresh<Buffer>()
      const most = 8 * 1024 * 1024
      await values.set('most', Buffer.alloc(most - 100, 7))
      expect((await values.get('most'))?.length).toBe(most - 100)
      const refused = values.set('more', Buffer.alloc(most))
      await expect(refused).rejects.toMatchObject({
        name: 'ValueTooLarge',
        key: keyOf(values as never, 'more'),
        limit: most,
        message: expect.stringMatching(/^'p\d+:default:more': expected a value of at most 8 MB, got 8\.0 MB;/),
      })
      expect(((await refused.catch((error) => error)) as { bytes: number }).bytes).toBeGreaterThan(most)
      await values.delete('most')
    })

    test.each<[string, unknown, RegExp]>([
      ['no text', 7, /as text/],
      ['empty', '', /as text/],
      ['with a line break', 'a\nb', /without control characters/],
      ['with half of a surrogate pair', 'a\udc00', /without control characters/],
      ['of more than 2 kB', 'ä'.repeat(1_024), /at most 2048 bytes, got \d+/],
    ])('a part that is %s is refused', async (_what, part, message) => {
      const values = fresh()
      const name = 'InvalidKey'
      await expect(values.set(part as string, 1)).rejects.toMatchObject({
        name,
        message: expect.stringMatching(message),
      })
      await expect(values.get(part as string)).rejects.toMatchObject({ name })
      await expect(values.getMany([part as string])).rejects.toMatchObject({ name })
      await expect(values.getOrLoad(part as string, () => 1)).rejects.toMatchObject({ name })
    })

    test('a value that has expired is as one that was never there, and is removed', async () => {
      const values = fresh<number>()
      const version = await values.set('a', 1, { ttl: '10s' })
      const { leftMs } = (await values.entry('a'))!
      expect(leftMs).toBeGreaterThan(0)
      expect(leftMs).toBeLessThanOrEqual(10_000)
      await under.expire(keyOf(values as never, 'a'))
      expect(await values.get('a')).toBeUndefined()
      expect(await values.entry('a')).toBeUndefined()
      expect(await values.getMany(['a'])).toEqual(new Map())
      expect(await values.compareAndSet('a', version, 2)).toBeUndefined()
      expect(await values.delete('a')).toBe(false)
      expect(await values.update('a', (n) => (n === undefined ? undefined : n + 1))).toBeUndefined()
      expect(await values.compareAndSet('a', null, 3)).toBeDefined()
      expect(await values.get('a')).toBe(3)
      await under.expire(keyOf(values as never, 'a'))
      await values.set('b', 4)
      const before = await under.records()
      const removed = await store.removeExpired()
      if (kind !== 'redis') expect([removed, await under.records()]).toEqual([1, before - 1])
      expect(await values.get('b')).toBe(4)
    })

    test('a value without a ttl stays, and one that is set anew takes the new ttl', async () => {
      const values = store.of<number>(`p${++prefixes}`)
      await values.set('a', 1)
      expect(await values.entry('a')).toMatchObject({ value: 1, leftMs: undefined })
      await values.set('a', 2, { ttl: '1m' })
      expect((await values.entry('a'))?.leftMs).toBeLessThanOrEqual(60_000)
      await values.set('a', 3)
      expect(await values.entry('a')).toMatchObject({ value: 3, leftMs: undefined })
    })

    test('compareAndSet and delete write only the version that they name', async () => {
      const values = fresh<number>()
      const first = await values.compareAndSet('a', null, 1)
      expect(await values.compareAndSet('a', null, 2)).toBeUndefined()
      expect((await values.entry('a'))?.version).toBe(first)
      const second = await values.compareAndSet('a', first!, 2)
      expect(await values.compareAndSet('a', first!, 3)).toBeUndefined()
      expect(await values.delete('a', { version: first })).toBe(false)
      expect(await values.get('a')).toBe(2)
      expect(await values.delete('a', { version: second })).toBe(true)
      expect(await values.compareAndSet('a', second!, 4)).toBeUndefined()
      expect(await values.get('a')).toBeUndefined()
    })

    test('of many that set one version at the same time, one does', async () => {
      const values = fresh<number>()
      const others = Array.from({ length: 8 }, () => under.open().of<number>(values.prefix))
      for (let round = 0, version: string | null = null; round < 10; round += 1) {
        const seen: string | null = version
        const set = await Promise.all(others.map((one, i) => one.compareAndSet('a', seen, i)))
        const winners = set.flatMap((one, i) => (one === undefined ? [] : [[one, i] as const]))
        expect(winners).toHaveLength(1)
        const [[won, value]] = winners as [[string, number]]
        expect(await values.entry('a')).toMatchObject({ value, version: won })
        version = won
      }
    })

    test('no update is lost, whoever makes them', async () => {
      const prefix = `p${++prefixes}`
      const processes = Array.from({ length: 4 }, () => under.open().of<number>(prefix))
      const one = (values: SharedValues<number>) => values.update('count', (n = 0) => n + 1)
      const counted = await Promise.all(processes.flatMap((values) => Array.from({ length: 15 }, () => one(values))))
      expect(counted.sort((a, b) => a! - b!)).toEqual(Array.from({ length: 60 }, (_, i) => i + 1))
      expect(await processes[0]!.get('count')).toBe(60)
    })

    test('an update that throws, or changes nothing, stores nothing', async () => {
      const values = fresh<number>()
      const version = await values.set('a', 1)
      await expect(
        values.update('a', () => {
          throw new Error('no')
        }),
      ).rejects.toThrow('no')
      expect(await values.update('a', () => undefined)).toBe(1)
      expect((await values.entry('a'))?.version).toBe(version)
    })

    test('callers have copies of their own', async () => {
      const values = store.of<{ list: number[] }>(`p${++prefixes}`, { layer: true })
      const mine = { list: [1] }
      const stored = values.set('a', mine)
      mine.list.push(2)
      await stored
      const [one, two] = await Promise.all([values.get('a'), values.get('a')])
      one!.list.push(3)
      expect(two).toEqual({ list: [1] })
      const [three, four] = await Promise.all([1, 2].map(() => values.getOrLoad('a', () => mine)))
      three!.list.push(4)
      expect(four).toEqual({ list: [1] })
      expect(await values.get('a')).toEqual({ list: [1] })
    })

    test('what somebody else has put under a key is an error or no value, and can be set anew', async () => {
      const values = fresh<number>()
      await values.set('a', 1)
      await under.damage(keyOf(values as never, 'a'))
      const found = await values.get('a').catch((error) => (error as Error).name)
      expect([undefined, 'DamagedValue']).toContain(found)
      await values.set('a', 2)
      expect(await values.get('a')).toBe(2)
    })
  })
}
