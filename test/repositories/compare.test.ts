import { expect, test } from '@jest/globals'
import fc from 'fast-check'
import { compare, type ListedFile, type RecordedFile } from 'phaselock-repositories'

const VERSION = 'model:384:7000/1500'
const record = (path: string, blob: string, also: Partial<RecordedFile> = {}): RecordedFile => ({
  path,
  blob,
  version: VERSION,
  ...also,
})

test.each<[string, ListedFile[], RecordedFile[], object]>([
  ['nothing', [], [], {}],
  ['the same', [{ path: 'a', blob: '1' }], [record('a', '1')], { unchanged: 1 }],
  ['added', [{ path: 'a', blob: '1' }], [], { added: [{ path: 'a', blob: '1' }] }],
  ['changed', [{ path: 'a', blob: '2' }], [record('a', '1')], { changed: [{ path: 'a', blob: '2' }] }],
  ['gone', [], [record('a', '1')], { gone: ['a'] }],
  [
    'renamed',
    [{ path: 'b/x', blob: '1' }],
    [record('a/x', '1')],
    { renamed: [{ from: 'a/x', file: { path: 'b/x', blob: '1' } }] },
  ],
  [
    'copied: the first one stays',
    [
      { path: 'a', blob: '1' },
      { path: 'b', blob: '1' },
    ],
    [record('a', '1')],
    { added: [{ path: 'b', blob: '1' }], unchanged: 1 },
  ],
  [
    'one lost, two new with its content: one is renamed',
    [
      { path: 'c', blob: '1' },
      { path: 'd', blob: '1' },
    ],
    [record('a', '1')],
    { renamed: [{ from: 'a', file: { path: 'c', blob: '1' } }], added: [{ path: 'd', blob: '1' }] },
  ],
  [
    'a folder of files with the same content keeps their names',
    [
      { path: 'new/index.ts', blob: '1' },
      { path: 'new/main.ts', blob: '1' },
    ],
    [record('old/main.ts', '1'), record('old/index.ts', '1')],
    {
      renamed: [
        { from: 'old/index.ts', file: { path: 'new/index.ts', blob: '1' } },
        { from: 'old/main.ts', file: { path: 'new/main.ts', blob: '1' } },
      ],
    },
  ],
  [
    'two files that change places are both changed',
    [
      { path: 'a', blob: '2' },
      { path: 'b', blob: '1' },
    ],
    [record('a', '1'), record('b', '2')],
    {
      changed: [
        { path: 'a', blob: '2' },
        { path: 'b', blob: '1' },
      ],
    },
  ],
  [
    'another model',
    [{ path: 'a', blob: '1' }],
    [record('a', '1', { version: 'other' })],
    { changed: [{ path: 'a', blob: '1' }] },
  ],
  [
    'it is called generated now',
    [{ path: 'a', blob: '1', skipped: 'generated' }],
    [record('a', '1')],
    { changed: [{ path: 'a', blob: '1', skipped: 'generated' }] },
  ],
  [
    'it was called generated, and is still',
    [{ path: 'a', blob: '1', skipped: 'generated' }],
    [record('a', '1', { skipped: 'generated' })],
    { unchanged: 1 },
  ],
])('%s', (_, listed, recorded, expected) => {
  expect(compare(listed, recorded, VERSION)).toEqual({
    added: [],
    changed: [],
    renamed: [],
    gone: [],
    unchanged: 0,
    ...expected,
  })
})

const trees = fc.dictionary(
  fc.stringMatching(/^[ab]\/[xyz]$/),
  fc.record({ blob: fc.constantFrom('1', '2', '3'), skipped: fc.constantFrom(undefined, 'generated') }),
)

test('whatever the records say, following the changes makes them what the listing is, and each file has one change', () => {
  fc.assert(
    fc.property(trees, trees, fc.array(fc.constantFrom(VERSION, 'other')), (now, before, versions) => {
      const listed = Object.entries(now).map(([path, file]) => ({ path, ...file }))
      const recorded = Object.entries(before).map(([path, file], i) => ({
        path,
        ...file,
        version: versions[i] ?? VERSION,
      }))
      const { added, changed, renamed, gone, unchanged } = compare(listed, recorded, VERSION)
      const records = new Map(recorded.map((one) => [one.path, one]))
      for (const { from, file } of renamed) {
        expect(records.get(from)?.blob).toBe(file.blob)
        expect(records.delete(from)).toBe(true)
      }
      for (const path of gone) expect(records.delete(path)).toBe(true)
      for (const file of changed) expect(records.has(file.path)).toBe(true)
      for (const file of [...added, ...renamed.map((one) => one.file)]) expect(records.has(file.path)).toBe(false)
      for (const file of [...added, ...changed, ...renamed.map((one) => one.file)])
        records.set(file.path, { ...file, version: VERSION })
      const plain = (files: Iterable<ListedFile>) =>
        [...files].map(({ path, blob, skipped }) => `${path} ${blob} ${skipped}`).sort()
      expect(plain(records.values())).toEqual(plain(listed))
      expect([...records.values()].every(({ version }) => version === VERSION)).toBe(true)
      expect(added.length + changed.length + renamed.length + unchanged).toBe(listed.length)
    }),
    { numRuns: 1_000 },
  )
})

test('20,000 files of the same content in a renamed folder are paired in linear time', () => {
  const count = 20_000
  const names = Array.from({ length: count }, (_, i) => `${i}.txt`)
  const { renamed, gone } = compare(
    names.map((name) => ({ path: `new/${name}`, blob: '1' })),
    names.map((name) => record(`old/${name}`, '1')),
    VERSION,
  )
  expect(renamed).toHaveLength(count)
  expect(gone).toEqual([])
  expect(renamed.every(({ from, file }) => from.slice(4) === file.path.slice(4))).toBe(true)
})
