/**
 * The promises of every vector store, run on each. The invariants:
 * 1. No write of a sync changes or removes a point that a later sync has written.
 * 2. A write that was answered is seen by the next read; one that threw `WrongVector` has written nothing.
 * 3. A filter never reaches a point of another repository, path or folder.
 * 4. A collection that is missing, or was made for something else, is an error, never an empty answer.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import {
  type CollectionSpec,
  type Point,
  pointId,
  type VectorStore,
} from '../../../packages/repositories/src/vectors/index.js'

export interface StoreUnderTest {
  readonly store: VectorStore
  close(): Promise<void>
}

export const SPEC: CollectionSpec = { model: 'hashed', dimensions: 4, chunker: 'lines:7000/1500' }

export function point(path: string, vector: number[] = [1, 0, 0, 0], more: Partial<Point> = {}): Point {
  const { repository = 'billing', hash = 'h1' } = more
  const id = pointId(repository, path, hash)
  const text = `text of ${path}\n"quoted", 'single', \\, €, 🎈`
  return { id, repository, path, blob: 'b1', hash, fromLine: 1, toLine: 20, text, vector, ...more }
}

/** @param describeIt `describe.skip` where its server can't be had */
export function behavesAsVectorStore(
  kind: string,
  open: () => Promise<StoreUnderTest>,
  describeIt: typeof describe | typeof describe.skip = describe,
): void {
  describeIt(`vectors in ${kind}`, () => {
    let under: StoreUnderTest
    let store: VectorStore
    let collection: string
    let collections = 0

    beforeAll(async () => {
      under = await open()
      store = under.store
    }, 240_000)
    afterAll(async () => await under?.close())
    beforeEach(async () => {
      collection = `Code-${++collections}`
      await store.create(collection, SPEC)
    })

    const all = async (filter = {}) => (await store.scroll(collection, filter)).points
    const pathsOf = async (filter: object) => (await all(filter)).map(({ path }) => path).sort()

    test('a collection has its model, dimension and chunker, and is made once', async () => {
      expect(store.kind).toBe(kind)
      expect(await store.describe(collection)).toEqual(SPEC)
      await store.upsert(collection, [point('a.ts')], { fence: 1 })
      await store.create(collection, SPEC)
      expect(await store.count(collection)).toBe(1)
      expect(await store.describe('Another')).toBeUndefined()
      for (const other of [{ model: "it's another" }, { dimensions: 5 }, { chunker: 'lines:100/0' }])
        await expect(store.create(collection, { ...SPEC, ...other })).rejects.toMatchObject({
          name: 'CollectionMismatch',
          message: expect.stringMatching(/^the collection 'Code-\d+' was made for model hashed, 4 dimensions, chunker/),
        })
      const awkward = { model: `it's "a" $1 $$model\\`, dimensions: 3, chunker: '€' }
      await store.create('awkward', awkward)
      expect(await store.describe('awkward')).toEqual(awkward)
    })

    test('of callers that make a collection at the same time, each succeeds, or learns that it lost to another model', async () => {
      const models = Array.from({ length: 8 }, (_, i) => (i % 2 ? 'a' : 'b'))
      const made = await Promise.allSettled(models.map((model) => store.create('raced', { ...SPEC, model })))
      const winner = (await store.describe('raced'))!.model
      expect(made.map(({ status }) => status)).toEqual(
        models.map((model) => (model === winner ? 'fulfilled' : 'rejected')),
      )
      await store.drop('raced')
      await store.drop('raced')
      expect(await store.describe('raced')).toBeUndefined()
    })

    test('points come back as they were written, the nearest first', async () => {
      const near = point('near.ts', [1, 0.1, 0, 0])
      const far = point('far.ts', [0, 0, 5, 0])
      await store.upsert(collection, [far, near, point('opposite.ts', [-2, 0, 0, 0])], { fence: 7 })
      const hits = await store.query(collection, [2, 0, 0, 0])
      const { vector: _, ...kept } = near
      expect(hits[0]).toEqual({ ...kept, fence: 7, score: expect.closeTo(0.995, 3) })
      expect(hits.map(({ path }) => path)).toEqual(['near.ts', 'far.ts', 'opposite.ts'])
      expect(hits.map(({ score }) => Math.round(score))).toEqual([1, 0, -1])
      expect(await store.query(collection, [0, 0, 1, 0], { limit: 1 })).toMatchObject([{ path: 'far.ts' }])
    })

    test('a repeated write overwrites; of the same id twice in one write the last counts', async () => {
      const first = point('a.ts')
      const moved = { ...first, fromLine: 5, toLine: 25 }
      await store.upsert(collection, [first], { fence: 1 })
      await store.upsert(collection, [first, moved], { fence: 1 })
      expect(await all()).toMatchObject([{ id: first.id, fromLine: 5, toLine: 25 }])
    })

    test('a late writer changes nothing that a later sync has written, and deletes none of it', async () => {
      const [a, b] = [point('a.ts'), point('b.ts')]
      await store.upsert(collection, [{ ...a, blob: 'later' }], { fence: 2_000_000_000_000_001 })
      await store.upsert(collection, [{ ...b, blob: 'earlier' }], { fence: 1_999_999_999_999_999 })
      const late = { fence: 2_000_000_000_000_000 }
      await store.upsert(collection, [{ ...a, blob: 'late' }, { ...b, blob: 'late' }, point('new.ts')], late)
      const blobs = Object.fromEntries((await all()).map(({ path, blob }) => [path, blob]))
      expect(blobs).toEqual({ 'a.ts': 'later', 'b.ts': 'late', 'new.ts': 'b1' })
      await store.delete(collection, { repository: 'billing' }, late)
      expect(await pathsOf({})).toEqual(['a.ts'])
      await store.delete(collection, { ids: [a.id] }, { fence: 2_000_000_000_000_001 })
      expect(await store.count(collection)).toBe(0)
    })

    test('the vector of a refused write is refused with it', async () => {
      await store.upsert(collection, [point('a.ts', [1, 0, 0, 0])], { fence: 2 })
      await store.upsert(collection, [point('a.ts', [0, 1, 0, 0])], { fence: 1 })
      expect((await store.query(collection, [1, 0, 0, 0]))[0]!.score).toBeCloseTo(1)
    })

    test('two repositories in one collection don’t touch each other, whatever their paths', async () => {
      const paths = ['src/a.ts', 'src/a/b.ts', 'src/ab.ts', 'src', "it's 100%_\n.ts", 'src/a/']
      const of = (repository: string) => paths.map((path) => point(path, [1, 0, 0, 0], { repository }))
      await store.upsert(collection, [...of('one'), ...of('two')], { fence: 1 })
      expect(await store.count(collection)).toBe(12)
      expect(await store.count(collection, { repository: 'one' })).toBe(6)
      await store.delete(collection, { repository: 'one', paths: ['src/a.ts', "it's 100%_\n.ts"] }, { fence: 1 })
      expect(await pathsOf({ repository: 'one' })).toEqual(['src', 'src/a/', 'src/a/b.ts', 'src/ab.ts'])
      await store.delete(collection, { repository: 'one', exceptIds: [pointId('one', 'src', 'h1')] }, { fence: 1 })
      expect(await pathsOf({ repository: 'one' })).toEqual(['src'])
      expect(await pathsOf({ repository: 'two' })).toEqual([...paths].sort())
      expect(await store.query(collection, [1, 0, 0, 0], { filter: { repository: 'one' } })).toHaveLength(1)
    })

    test('a filter by folder takes what is below it, and a file by its own name', async () => {
      const paths = [
        'src/a.ts',
        'src/lock/b.ts',
        'src/lock/end/c.ts',
        'src/locks/d.ts',
        'src_lock/e.ts',
        '100%/f.ts',
        '1000/g.ts',
      ]
      await store.upsert(
        collection,
        paths.map((path) => point(path)),
        { fence: 1 },
      )
      expect(await pathsOf({ under: 'src/lock' })).toEqual(['src/lock/b.ts', 'src/lock/end/c.ts'])
      expect(await pathsOf({ under: 'src/lock/' })).toEqual(['src/lock/b.ts', 'src/lock/end/c.ts'])
      expect(await pathsOf({ under: 'src/locks/d.ts' })).toEqual(['src/locks/d.ts'])
      expect(await pathsOf({ under: '100%' })).toEqual(['100%/f.ts'])
      expect(await pathsOf({ under: 'src', paths: ['src/a.ts', '100%/f.ts'] })).toEqual(['src/a.ts'])
      const hits = await store.query(collection, [1, 0, 0, 0], { limit: 3, filter: { under: 'src/locks' } })
      expect(hits.map(({ path }) => path)).toEqual(['src/locks/d.ts'])
    })

    test('lists that are empty match nothing, and an empty filter deletes nothing', async () => {
      await store.upsert(collection, [point('a.ts')], { fence: 1 })
      expect(await store.count(collection, { ids: [] })).toBe(0)
      expect(await store.query(collection, [1, 0, 0, 0], { filter: { paths: [] } })).toEqual([])
      await store.delete(collection, { repository: 'billing', paths: [] }, { fence: 1 })
      await store.upsert(collection, [], { fence: 1 })
      await expect(store.delete(collection, {}, { fence: 1 })).rejects.toMatchObject({ name: 'InvalidFilter' })
      await expect(store.delete(collection, { repository: undefined, exceptIds: [] }, { fence: 1 })).rejects.toThrow(
        /filter/,
      )
      await expect(store.delete(collection, { repo: 'billing' } as object, { fence: 1 })).rejects.toThrow(/got 'repo'/)
      expect(await store.count(collection)).toBe(1)
    })

    test('250 points are written and read in pages, each once, though others are deleted meanwhile', async () => {
      const points = Array.from({ length: 250 }, (_, i) => point(`${i}.ts`, [1, i, 0, 0]))
      await store.upsert(collection, points, { fence: 1 })
      const seen: string[] = []
      let after: string | undefined
      do {
        const page = await store.scroll(collection, {}, { limit: 60, after })
        seen.push(...page.points.map(({ id }) => id))
        after = page.next
        if (seen.length === 60) await store.delete(collection, { ids: seen.slice(0, 30) }, { fence: 1 })
      } while (after !== undefined)
      expect(seen).toEqual(points.map(({ id }) => id).sort())
      expect(await store.count(collection)).toBe(220)
    })

    test('a wrong dimension, a NaN and an empty vector are refused, and nothing is written', async () => {
      const good = point('good.ts')
      for (const vector of [
        [1, 2, 3],
        [1, 2, 3, 4, 5],
        [],
        [1, Number.NaN, 0, 0],
        [1, 0, 0, Number.POSITIVE_INFINITY],
      ]) {
        const bad = point('bad.ts', vector)
        await expect(store.upsert(collection, [good, bad], { fence: 1 })).rejects.toMatchObject({ name: 'WrongVector' })
        await expect(store.upsert(collection, [bad], { fence: 1 })).rejects.toMatchObject({ name: 'WrongVector' })
      }
      expect(await store.count(collection)).toBe(0)
      await store.upsert(collection, [good], { fence: 1 })
      for (const vector of [[1, 2, 3], [], [1, Number.NaN, 0, 0]])
        await expect(store.query(collection, vector)).rejects.toMatchObject({ name: 'WrongVector' })
    })

    test('a vector without a direction is stored, and found last', async () => {
      await store.upsert(collection, [point('zero.ts', [0, 0, 0, 0]), point('a.ts', [1, 0, 0, 0])], { fence: 1 })
      const hits = await store.query(collection, [1, 0, 0, 0])
      expect(hits.map(({ path, score }) => [path, Math.round(score)])).toEqual([
        ['a.ts', 1],
        ['zero.ts', 0],
      ])
    })

    test('a collection that was deleted is an error, and made again it is empty', async () => {
      await store.upsert(collection, [point('a.ts')], { fence: 1 })
      await store.drop(collection)
      const missing = { name: 'CollectionMissing', collection }
      await expect(store.upsert(collection, [point('a.ts')], { fence: 1 })).rejects.toMatchObject(missing)
      await expect(store.delete(collection, { repository: 'x' }, { fence: 1 })).rejects.toMatchObject(missing)
      await expect(store.query(collection, [1, 0, 0, 0])).rejects.toMatchObject(missing)
      await expect(store.count(collection)).rejects.toMatchObject(missing)
      await expect(store.count(collection, { ids: [] })).rejects.toMatchObject(missing)
      await expect(store.scroll(collection)).rejects.toMatchObject(missing)
      await store.create(collection, SPEC)
      expect(await store.count(collection)).toBe(0)
      await store.upsert(collection, [point('a.ts')], { fence: 1 })
      expect(await store.count(collection)).toBe(1)
    })

    test('names, fences, ids and limits that can’t be are refused with what was expected', async () => {
      for (const name of ['', '-a', 'a/b', 'a b', '"a"', 'é', 'x'.repeat(64), '../a'])
        await expect(store.create(name, SPEC)).rejects.toMatchObject({ name: 'InvalidCollection' })
      await expect(store.create('x', { ...SPEC, dimensions: 0 })).rejects.toThrow(/dimensions: expected a whole number/)
      await expect(store.create('x', { ...SPEC, model: '' })).rejects.toThrow(/model: expected/)
      for (const fence of [-1, 1.5, Number.NaN, 2 ** 53])
        await expect(store.upsert(collection, [point('a')], { fence })).rejects.toThrow(/fence: expected/)
      await expect(store.upsert(collection, [point('a', [1], { id: 'a' })], { fence: 1 })).rejects.toThrow(/UUID/)
      await expect(store.query(collection, [1, 0, 0, 0], { limit: 1_001 })).rejects.toThrow(/limit: expected/)
      await expect(store.scroll(collection, {}, { limit: 0 })).rejects.toThrow(/limit: expected/)
    })

    test('a call ends with its signal', async () => {
      const signal = AbortSignal.abort(new Error('the step is over'))
      await expect(store.upsert(collection, [point('a')], { fence: 1, signal })).rejects.toThrow('the step is over')
      await expect(store.query(collection, [1, 0, 0, 0], { signal })).rejects.toThrow('the step is over')
      const later = new AbortController()
      const counting = store.count(collection, {}, { signal: later.signal })
      later.abort(new Error('now'))
      await expect(counting).rejects.toThrow('now')
      expect(await store.count(collection)).toBe(0)
    })

    test('writers of the same points in different orders all get through, and the highest fence stays', async () => {
      const points = Array.from({ length: 120 }, (_, i) => point(`${i}.ts`))
      await Promise.all(
        Array.from({ length: 8 }, (_, i) =>
          store.upsert(
            collection,
            (i % 2 ? points : points.toReversed()).map((one) => ({ ...one, blob: `b${i}` })),
            { fence: i },
          ),
        ),
      )
      expect(new Set((await all()).map(({ blob, fence }) => `${blob} ${fence}`))).toEqual(new Set(['b7 7']))
    })
  })
}
