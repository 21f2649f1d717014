import { expect, test } from '@jest/globals'
import { FileSelection, GeneratedFiles, type TreeEntry } from 'phaselock-repositories'

const entry = (path: string, also: Partial<TreeEntry> = {}): TreeEntry => ({
  path,
  blob: '1',
  kind: 'file',
  bytes: 10,
  ...also,
})

test.each<[string[], string[], string, boolean]>([
  [[], [], 'src/a.ts', true],
  [['src/'], [], 'src/deep/a.ts', true],
  [['src/'], [], 'docs/a.md', false],
  [['*.ts', '!*.d.ts'], [], 'src/a.d.ts', false],
  [['*.ts', '!*.d.ts'], [], 'src/a.ts', true],
  [[], ['node_modules/'], 'packages/x/node_modules/y/index.js', false],
  [[], ['node_modules/'], 'node_modules', true],
  [[], ['*.min.js', '!keep.min.js'], 'dist/keep.min.js', true],
  [[], ['/build'], 'src/build/a.ts', true],
  [[], ['**/snapshots/**'], 'a/snapshots/b/c.ts', false],
  [['src/'], ['*.test.ts'], 'src/a.test.ts', false],
  // Case counts, and odd names of a tree are names only.
  [[], ['README'], 'readme', true],
  [[], ['evil'], '../../evil', false],
  [[], ['x'], '/etc/passwd', true],
  [[], ['x'], './a', true],
  [['*.ts'], [], 'two\nlines.ts', true],
  [['*.ts'], [], '"caf\\351.ts"', false],
])('include %j, exclude %j: %s', (include, exclude, path, taken) => {
  expect(new FileSelection({ include, exclude }).takes(path)).toBe(taken)
})

test('what a listing alone decides', () => {
  const selection = new FileSelection({})
  const generated = new GeneratedFiles([{ folder: '', text: '*.pb.go linguist-generated\n' }])
  expect(selection.reason(entry('a'), generated)).toBeUndefined()
  expect(selection.reason(entry('a', { kind: 'symlink' }), generated)).toBe('symlink')
  expect(selection.reason(entry('a', { kind: 'submodule' }), generated)).toBe('submodule')
  expect(selection.reason(entry('a', { bytes: 2_000_001 }), generated)).toBe('too large')
  expect(selection.reason(entry('a', { bytes: 2_147_483_648 }), generated)).toBe('too large')
  expect(selection.reason(entry('a', { bytes: 2_000_000 }), generated)).toBeUndefined()
  expect(selection.reason(entry('x/a.pb.go', { bytes: undefined }), generated)).toBe('generated')
})

test.each([
  ['*.pb.go linguist-generated', 'x/a.pb.go', true],
  ['*.pb.go linguist-generated=true', 'x/a.pb.go', true],
  ['*.pb.go gitlab-generated', 'x/a.pb.go', true],
  ['*.pb.go linguist-generated=false', 'x/a.pb.go', false],
  ['*.pb.go -linguist-generated', 'x/a.pb.go', false],
  ['*.pb.go text eol=lf linguist-generated # not a comment', 'a.pb.go', true],
  ['* linguist-generated\n*.ts -linguist-generated', 'a.ts', false],
  ['*.ts -linguist-generated\n* linguist-generated', 'a.ts', true],
  ['dist/** linguist-generated', 'dist/deep/a.js', true],
  ['dist/ linguist-generated', 'dist/a.js', false],
  ['dist linguist-generated', 'dist/a.js', false],
  ['/a.js linguist-generated', 'a.js', true],
  ['/a.js linguist-generated', 'x/a.js', false],
  ['x/*.js linguist-generated', 'x/y/a.js', false],
  ['**/gen/*.js linguist-generated', 'x/y/gen/a.js', true],
  ['**/gen/*.js linguist-generated', 'gen/a.js', true],
  ['[ab].js linguist-generated', 'b.js', true],
  ['[!ab].js linguist-generated', 'b.js', false],
  ['"with blank.js" linguist-generated', 'with blank.js', true],
  ['!*.js linguist-generated', 'a.js', false],
  ['# *.js linguist-generated', 'a.js', false],
  ['a.js', 'a.js', false],
  ['[z-a].js linguist-generated\nb.js linguist-generated', 'b.js', true],
])('.gitattributes %j: %s', (text, path, generated) => {
  expect(new GeneratedFiles([{ folder: '', text }]).has(path)).toBe(generated)
})

test('attributes of a deeper folder count more, and hold for what is below it', () => {
  const files = new GeneratedFiles([
    { folder: '', text: '*.js linguist-generated\n' },
    { folder: 'src', text: '*.js -linguist-generated\n/gen/*.js linguist-generated\n' },
    { folder: 'src/gen/own', text: '*.js !linguist-generated' },
  ])
  expect(
    ['a.js', 'src/a.js', 'src/gen/a.js', 'other/gen/a.js', 'src/gen/deep/a.js'].map((path) => files.has(path)),
  ).toEqual([true, false, true, true, false])
})

test('no pattern takes long: they come from repositories', () => {
  const patterns = ['**/'.repeat(100), '**/a/'.repeat(50), '*a'.repeat(50), '*'.repeat(400)]
  const text = patterns.map((pattern) => `${pattern}c linguist-generated`).join('\n')
  const files = new GeneratedFiles([{ folder: '', text }])
  expect(files.has(`${'a/'.repeat(200)}d`)).toBe(false)
  expect(files.has(`${'a'.repeat(400)}d`)).toBe(false)
  expect(files.has(`${'a/'.repeat(200)}c`)).toBe(true)
})

test.each([
  [{ include: 'src' as never }, 'include: expected a list of patterns, got string'],
  [{ exclude: ['a', ''] }, 'exclude.1: expected a pattern of 1 to 500 characters'],
  [{ exclude: Array.from({ length: 1_001 }, () => 'a') }, 'exclude: expected at most 1000 patterns, got 1001'],
  [{ maxFileBytes: 0 }, 'maxFileBytes: expected a whole number of bytes from 1, got 0'],
])('settings that can not be: %#', (settings, message) => {
  expect(() => new FileSelection(settings)).toThrow(message)
})
