import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'

const root = resolve(import.meta.dirname, '../..')
const biome = join(root, 'node_modules/@biomejs/biome/bin/biome')

describe('only src/lock writes and judges leases', () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'phaselock-leases-'))
    await cp(join(root, 'biome.json'), join(folder, 'biome.json'))
    await cp(join(root, 'tools/lint'), join(folder, 'tools/lint'), { recursive: true })
  })
  afterAll(() => rm(folder, { recursive: true }))

  /** Whether the lint of this repository says so of a file. */
  async function isRefused(path: string, text: string): Promise<boolean> {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), text)
    const linting = promisify(execFile)(process.execPath, [biome, 'lint', '--vcs-enabled=false', path], { cwd: folder })
    const { stderr } = await linting.catch((error) => error as { stderr: string })
    return stderr.includes('Only src/lock writes')
  }

  const WRITES: [string, string][] = [
    ['takes it away', "[{ $set: { lockedAt: 0, lockedBy: '$$REMOVE' } }]"],
    ['unsets it', "{ $unset: { lockedBy: '' } }"],
    ['names it with quotes', "{ $unset: { 'lockedBy': 1 } }"],
    ['is conditional on nobody', '{ lockedBy: null }'],
    ['is conditional on somebody', '{ lockedBy }'],
  ]
  test.each(WRITES)('what %s', async (_what, text) => {
    expect(await isRefused('src/operations/x.ts', `export const x = (lockedBy: string) => [${text}, lockedBy]`)).toBe(
      true,
    )
    expect(await isRefused('src/lock/x.ts', `export const x = (lockedBy: string) => [${text}, lockedBy]`)).toBe(false)
  })

  test('it may be read', async () => {
    const text = 'export const x = (d: { readonly lockedBy?: string }) => d.lockedBy'
    expect(await isRefused('src/operations/x.ts', text)).toBe(false)
  })
})
