import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, expect, test } from '@jest/globals'
import { engineTests } from '../tiers.mjs'

const root = resolve(import.meta.dirname, '../..')
const path = (file: string) => relative(root, file)

/** What starts a server says so where it isn't installed, by one of these errors; what skips tests then is the third. */
const STARTERS = ['tools/servers/server-missing.mjs', 'chaos/replica-set/mongod.ts', 'test/support/describe-with.ts']

/** The test files of `npm test`, as Jest lists them. */
const files: string[] = []
beforeAll(async () => {
  const jest = ['--experimental-vm-modules', join(root, 'node_modules/jest/bin/jest.js'), '--listTests']
  const { stdout } = await promisify(execFile)(process.execPath, jest, { cwd: root })
  files.push(...stdout.trim().split('\n'))
})

const known = new Map<string, readonly string[]>()
/** The files of this repository that a file names: by imports of any kind, and as programs that it starts. */
function named(file: string): readonly string[] {
  const before = known.get(file)
  if (before) return before
  const names = [...readFileSync(file, 'utf8').matchAll(/['"`](\.{1,2}\/[^'"`\n]+\.(?:m?[jt]s))['"`]/g)]
  const found = names.flatMap(([, name]) => {
    const given = resolve(dirname(file), name!)
    return [given, given.replace(/js$/, 'ts')].filter(existsSync).slice(0, 1)
  })
  known.set(file, found)
  return found
}

/** By which files a test reaches one that starts a server which npm doesn't bring; `undefined` if it reaches none. */
function wayToServer(file: string): string | undefined {
  const from = new Map<string, string | undefined>([[file, undefined]])
  for (const [one] of from) {
    if (STARTERS.includes(path(one))) {
      const way = []
      for (let at: string | undefined = one; at; at = from.get(at)) way.unshift(path(at))
      return way.join(' -> ')
    }
    for (const next of named(one)) if (!from.has(next)) from.set(next, one)
  }
  return undefined
}

test('no test of the first tier starts a server that npm does not bring', () => {
  expect(files.length).toBeGreaterThan(100)
  expect(files.map(wayToServer).filter((way) => way !== undefined)).toEqual([])
})

test.each(['locks/redis-keys', 'locks/conformance', 'kubernetes/fence', 'sharded/routers', 'locks/interop'])(
  'test/%s is seen to start one, also through what it shares',
  (name) => {
    expect(wayToServer(join(root, 'test', `${name}.test.ts`))).toMatch(/ -> /)
  },
)

test('tests that only the embedded engine can run are known', () => {
  const stepping = files.filter((file) => /\.stepClock\([-\w]/.test(readFileSync(file, 'utf8')))
  expect(stepping.map((file) => relative(join(root, 'test'), file)).sort()).toEqual(engineTests)
})
