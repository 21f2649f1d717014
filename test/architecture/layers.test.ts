import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from '@jest/globals'

const root = resolve(import.meta.dirname, '../..')
const depcruise = join(root, 'node_modules/dependency-cruiser/bin/dependency-cruise.mjs')

/** Runs the layer check in a tree of its own; resolves to the names of the rules that were broken. */
async function brokenRules(files: Record<string, string>): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'phaselock-layers-'))
  try {
    for (const file of ['.dependency-cruiser.cjs', 'tools/lint/layers.cjs']) {
      await cp(join(root, file), join(folder, file))
    }
    await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(folder, path)), { recursive: true })
      await writeFile(join(folder, path), text)
    }
    const folders = [
      ...new Set(Object.keys(files).map((path) => /^(?:src|packages\/[^/]+\/src)/.exec(path)?.[0] ?? 'src')),
    ]
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [await entry(), ...folders, '--output-type', 'json'],
      {
        cwd: folder,
      },
    ).catch((error) => error as { stdout: string })
    const report = JSON.parse(stdout) as { summary: { violations: { rule: { name: string } }[] } }
    return [...new Set(report.summary.violations.map((violation) => violation.rule.name))].sort()
  } finally {
    await rm(folder, { recursive: true })
  }
}

async function entry(): Promise<string> {
  const { bin } = JSON.parse(await readFile(join(root, 'node_modules/dependency-cruiser/package.json'), 'utf8'))
  return join(root, 'node_modules/dependency-cruiser', bin.depcruise ?? depcruise)
}

async function sources(folder: string): Promise<string[]> {
  const entries = await readdir(join(root, folder), { recursive: true, withFileTypes: true })
  return entries
    .filter((one) => one.isFile() && /\.(ts|mjs)$/.test(one.name) && !one.parentPath.includes('node_modules'))
    .map((one) => join(one.parentPath, one.name))
}

describe('the layers', () => {
  const index = { 'src/lock/index.ts': 'export const a = 1', 'src/phases/index.ts': 'export const b = 1' }

  test('an import that goes down through an index is fine', async () => {
    expect(
      await brokenRules({ ...index, 'src/phases/x.ts': `import { a } from '../lock/index.js'\nexport { a }` }),
    ).toEqual([])
  })

  test('an import that goes up is refused, also of a type only', async () => {
    const up = `import type { B } from '../phases/index.js'\nexport type C = B`
    expect(await brokenRules({ ...index, 'src/lock/x.ts': up })).toContain('lock-imports-down-only')
  })

  test('the doorbell lies between lock and phases, which use it: it knows nothing of them', async () => {
    const bell = { ...index, 'src/doorbell/index.ts': 'export const d = 1' }
    const uses = `import { d } from '../doorbell/index.js'\nexport { d }`
    expect(await brokenRules({ ...bell, 'src/phases/x.ts': uses })).toEqual([])
    expect(await brokenRules({ ...bell, 'src/lock/x.ts': uses })).toContain('lock-imports-down-only')
    const up = `import { b } from '../phases/index.js'\nexport { b }`
    expect(await brokenRules({ ...bell, 'src/doorbell/x.ts': up })).toContain('doorbell-locks-imports-down-only')
  })

  test('options are described without the validator, which one file knows', async () => {
    const uses = "import * as v from 'valibot'\nexport const a = v.string()"
    expect(await brokenRules({ 'src/lock/x.ts': uses })).toContain('one-file-knows-the-validator')
    expect(await brokenRules({ 'src/options/type.ts': uses })).not.toContain('one-file-knows-the-validator')
  })

  test('src imports no package of this repository', async () => {
    const apart = {
      'packages/local-database/src/index.ts': 'export const l = 1',
      'src/database/x.ts': `export { l } from '../../packages/local-database/src/index.js'`,
    }
    expect(await brokenRules(apart)).toEqual(['local-database-apart'])
  })

  test('the task kinds import what phaselock exports, and no file of it', async () => {
    const kind = (from: string) => ({
      'packages/tasks/src/x.ts': `export { a } from '${from}'`,
      'packages/tasks/package.json': '{ "name": "t", "peerDependencies": { "phaselock": "^0.1.0" } }',
      'packages/local-database/src/index.ts': 'export const a = 1',
      ...index,
    })
    expect(await brokenRules(kind('phaselock/tasks'))).toEqual([])
    expect(await brokenRules(kind('phaselock/dist/lock/index.js'))).toContain('packages-import-what-is-exported')
    for (const file of ['../../../src/lock/index.js', '../../local-database/src/index.js'])
      expect(await brokenRules(kind(file))).toContain('packages-import-no-files-of-others')
  })

  test('an import past an index is refused', async () => {
    const deep = {
      ...index,
      'src/lock/inner.ts': 'export const i = 1',
      'src/phases/x.ts': `export { i } from '../lock/inner.js'`,
    }
    expect(await brokenRules(deep)).toEqual(['a-folder-is-used-through-its-index'])
  })

  test('what is published imports nothing of what tests, measures or proves it', async () => {
    for (const folder of ['test', 'bench', 'chaos']) {
      const files = {
        [`${folder}/x.ts`]: 'export const x = 1',
        'src/lock/x.ts': `export { x } from '../../${folder}/x.js'`,
      }
      expect(await brokenRules(files)).toEqual(['src-without-tests'])
    }
  })

  test('two files of the phases that need each other are refused, also for types only', async () => {
    const two = {
      'src/phases/one.ts': `import type { Two } from './two.js'\nexport type One = Two`,
      'src/phases/two.ts': `import type { One } from './one.js'\nexport type Two = One`,
    }
    expect(await brokenRules(two)).toEqual(['no-cycles-of-types'])
  })

  test('folders of one layer do not import each other', async () => {
    const sibling = {
      'src/kubernetes/index.ts': 'export const k = 1',
      'src/schedules/x.ts': `export { k } from '../kubernetes/index.js'`,
    }
    expect(await brokenRules(sibling)).toContain('schedules-imports-no-sibling')
  })

  test('rooms of a folder are layers: a room imports rooms below it, and no loose file of its folder', async () => {
    const x = 'export const x = 1'
    const uses = (from: string) => `export { x } from '${from}'`
    const rooms = { ...index, 'src/lock/terms/x.ts': x, 'src/lock/claim/x.ts': x }
    const broken = (path: string, from: string) => brokenRules({ ...rooms, [path]: uses(from) })
    expect(await broken('src/lock/claim/y.ts', '../terms/x.js')).toEqual([])
    expect(await broken('src/lock/terms/y.ts', '../claim/x.js')).toEqual(['lock-terms-imports-rooms-below'])
    expect(await broken('src/lock/end/y.ts', '../claim/x.js')).toEqual(['lock-claim-end-imports-rooms-below'])
    expect(await broken('src/lock/claim/y.ts', '../loose.js')).toEqual([])
    expect(await brokenRules({ ...rooms, 'src/lock/loose.ts': x, 'src/lock/claim/y.ts': uses('../loose.js') })).toEqual(
      ['lock-claim-end-imports-rooms-below'],
    )
    expect(await brokenRules({ ...index, 'src/lock/other/x.ts': uses('../index.js') })).toContain(
      'lock-has-no-other-rooms',
    )
  })

  test('operations know neither terminals nor HTTP nor how anything is logged', async () => {
    const foreign =
      /from '(node:)?(https?|http2|readline|tty)'|from '(commander|pino[^']*|express|@nestjs[^']*)'|process\.std|console\./
    const knowing: string[] = []
    for (const path of await sources('src/operations')) {
      if (foreign.test(await readFile(path, 'utf8'))) knowing.push(path)
    }
    expect(knowing).toEqual([])
  })

  test('no source file has more than 400 lines', async () => {
    const long: string[] = []
    for (const path of [
      ...(await sources('src')),
      ...(await sources('packages')),
      ...(await sources('chaos')),
      ...(await sources('bench')),
      ...(await sources('test')),
    ]) {
      const lines = (await readFile(path, 'utf8')).split('\n').length
      if (lines > 401) long.push(`${path}: ${lines}`)
    }
    expect(long).toEqual([])
  })
})
