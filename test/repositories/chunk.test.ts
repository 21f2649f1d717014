import { expect, test } from '@jest/globals'
import fc from 'fast-check'
import { checkEncodings, chunksOf, decode } from 'phaselock-repositories'

/** Texts of lines of all lengths, with surrogate pairs, line ends of both kinds, and blank lines. */
const texts = fc
  .array(
    fc.oneof(
      fc.string({ unit: 'binary', maxLength: 60 }),
      fc.constantFrom('', '\r', '}', '😀😀😀😀', 'a😀', 'x'.repeat(150)),
    ),
    { maxLength: 60 },
  )
  .map((lines) => lines.join('\n').toWellFormed())
const sizes = fc
  .record({ characters: fc.integer({ min: 4, max: 80 }), part: fc.integer({ min: 0, max: 50 }) })
  .map(({ characters, part }) => ({ characters, overlap: Math.floor((characters * part) / 100) }))

const linesBefore = (text: string, position: number) => text.slice(0, position).split('\n').length

test('chunks fit, keep their order, know their exact lines, and never cut a surrogate pair', () => {
  fc.assert(
    fc.property(texts, sizes, (text, size) => {
      const chunks = chunksOf(text, size)
      const bad = chunks.filter((chunk) => chunk.text.length > size.characters || !chunk.text.isWellFormed())
      expect(bad).toEqual([])
      expect(new Set(chunks.map(({ hash }) => hash)).size).toBe(chunks.length)
      // A number of chunks that the text bounds: each two of them go on by more than most of a chunk without its overlap.
      expect(chunks.length).toBeLessThanOrEqual(2 + (2 * text.length) / (0.85 * size.characters - size.overlap - 1))
    }),
    { numRuns: 500 },
  )
})

/** Lines of characters that come once each, every third one a surrogate pair, so that a chunk's text says where it stands. */
const numberedTexts = fc
  .array(fc.tuple(fc.nat({ max: 70 }), fc.constantFrom('\n', '\n\n', '\r\n', '\r\n\r\n')), {
    minLength: 1,
    maxLength: 40,
  })
  .map((lines) => {
    let next = 0
    const character = () => String.fromCodePoint((next % 3 === 0 ? 0x20000 : 0x4e00) + next++)
    return lines.map(([length, end]) => Array.from({ length }, character).join('') + end).join('')
  })

test('chunks cover the text: each begins within the overlap of the one before, at a line start where lines fit', () => {
  fc.assert(
    fc.property(numberedTexts, sizes, (text, size) => {
      // A chunk that begins with line ends stands where they lead to its first character of the others.
      const chunks = chunksOf(text, size)
      const starts = chunks.map((chunk) => text.indexOf(chunk.text.trim()) - chunk.text.indexOf(chunk.text.trim()))
      let covered = 0
      chunks.forEach((chunk, i) => {
        const start = starts[i]!
        const end = start + chunk.text.length
        if (text.slice(covered, start).trim() !== '') throw new Error(`a gap before chunk ${i}`)
        if (end <= covered) throw new Error(`chunk ${i} goes no further than the one before`)
        if (covered - start > size.overlap) throw new Error(`chunk ${i} repeats ${covered - start} characters`)
        const lines = { from: linesBefore(text, start), to: linesBefore(text, end - 1) }
        if (lines.from !== chunk.lines.from || lines.to !== chunk.lines.to) throw new Error(`lines of chunk ${i}`)
        covered = end
      })
      expect(text.slice(covered).trim()).toBe('')
    }),
    { numRuns: 500 },
  )
})

/** A file like those of a program: lines of 0 to 99 characters, all different. */
function program(lines: number): string {
  let random = 42
  return Array.from({ length: lines }, (_, i) => {
    random = (random * 1_103_515_245 + 12_345) % 2_147_483_648
    return `${i} ${'word '.repeat(20)}`.slice(0, random % 100)
  })
    .map((line, i) => `${line}${i % 7 === 0 ? i : ''}\n`)
    .join('')
}

test('7,000 characters and 1,500 of overlap; the lines are those of the file', () => {
  const text = program(1_400)
  const chunks = chunksOf(text)
  expect(chunks.length).toBeGreaterThan(8)
  const lines = text.split('\n')
  for (const { text: part, lines: at } of chunks)
    expect(part).toBe(lines.slice(at.from - 1, at.to).join('\n') + (at.to < lines.length ? '\n' : ''))
})

test('a line inserted at the top changes a chunk or two in the mean, wherever lines end', () => {
  let changed = 0
  const texts = Array.from({ length: 20 }, (_, i) => program(1_300 + i * 17).slice(i * 13))
  for (const text of texts) {
    const before = new Set(chunksOf(text).map(({ hash }) => hash))
    changed += chunksOf(`// one more line\n${text}`).filter(({ hash }) => !before.has(hash)).length
  }
  expect(changed / texts.length).toBeLessThan(4)
})

test.each([
  ['nothing', '', []],
  ['blank lines only', ' \n\n\t\n', []],
  ['one line without its end', 'abc', [[1, 1]]],
  ['one line', 'abc\n', [[1, 1]]],
  [
    'a long line is cut',
    `${'x'.repeat(25)}\n`,
    [
      [1, 1],
      [1, 1],
      [1, 1],
      [1, 1],
    ],
  ],
  [
    'short lines before a long one stay whole',
    `a\nb\n${'x'.repeat(9)}\nc\n`,
    [
      [1, 2],
      [3, 3],
      [4, 4],
    ],
  ],
])('%s', (_, text, lines) => {
  expect(chunksOf(text, { characters: 10, overlap: 4 }).map(({ lines: { from, to } }) => [from, to])).toEqual(lines)
})

test('equal chunks of one file have hashes of their own; the same text at another place of another file has the same', () => {
  const same = chunksOf(`${'x'.repeat(9)}\n${'x'.repeat(9)}\n`, { characters: 10, overlap: 0 })
  expect(same.map(({ text }) => text)).toEqual([`${'x'.repeat(9)}\n`, `${'x'.repeat(9)}\n`])
  expect(same[0]!.hash).not.toBe(same[1]!.hash)
  expect(chunksOf(`other\n${'x'.repeat(9)}\n`, { characters: 10, overlap: 0 }).at(-1)!.hash).toBe(same[0]!.hash)
})

test('two megabytes without a line end take no longer than others', () => {
  const chunks = chunksOf('😀'.repeat(1_000_000))
  expect(chunks.length).toBe(Math.ceil((2_000_000 - 1_500) / 5_500))
  expect(chunks.every(({ text }) => text.isWellFormed())).toBe(true)
})

test.each([
  { characters: 3, overlap: 0 },
  { characters: 10, overlap: 6 },
  { characters: 10, overlap: -1 },
  { characters: Number.NaN, overlap: 0 },
])('sizes that can not be: %j', (size) => {
  expect(() => chunksOf('a', size)).toThrow(RangeError)
})

const utf16be = (text: string) => Buffer.from(text, 'utf16le').swap16()

test.each([
  ['UTF-8', Buffer.from('héllo 😀'), { text: 'héllo 😀' }],
  ['UTF-8 with a mark', Buffer.from('\ufeffa'), { text: 'a' }],
  ['UTF-16, little end first', Buffer.from('\ufeffaé😀', 'utf16le'), { text: 'aé😀' }],
  ['UTF-16, big end first', utf16be('\ufeffaé'), { text: 'aé' }],
  ['EUC-KR', Buffer.from([0xb0, 0xa1, 0x0a]), { text: '가\n' }],
  ['neither', Buffer.from([0x61, 0xff, 0xff, 0x20]), { skipped: 'encoding' }],
  ['a NUL', Buffer.from('PNG\0'), { skipped: 'binary' }],
  ['a NUL behind a mark', Buffer.from('\ufeffa\0'), { skipped: 'binary' }],
  ['a NUL in UTF-16', Buffer.from('\ufeffa\0', 'utf16le'), { skipped: 'binary' }],
  ['half a pair in UTF-16', Buffer.from([0xff, 0xfe, 0x3d, 0xd8]), { skipped: 'encoding' }],
  ['nothing', Buffer.alloc(0), { skipped: 'empty' }],
  ['a mark alone', Buffer.from('\ufeff'), { skipped: 'empty' }],
  ['blanks', Buffer.from(' \n'), { skipped: 'empty' }],
  ['a pointer of LFS', Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:1\n'), { skipped: 'lfs' }],
])('decodes %s', (_, bytes, decoded) => {
  expect(decode(bytes, ['euc-kr'])).toEqual(decoded)
})

test('bytes that are not UTF-8 are skipped where no other encoding was given', () => {
  expect(decode(Buffer.from([0xb0, 0xa1]))).toEqual({ skipped: 'encoding' })
  expect(() => checkEncodings(['utf-7'])).toThrow('got "utf-7"')
  expect(() => checkEncodings(['euc-kr', 'windows-1252', 'shift_jis'])).not.toThrow()
})
