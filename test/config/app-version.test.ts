import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'

const OWN = resolve('dist/config/app-version.js')

describe("the version of the app that a replica's beat carries", () => {
  const folder = mkdtempSync(join(tmpdir(), 'app-version-'))
  afterAll(() => rmSync(folder, { recursive: true }))
  const put = (path: string, text: string) => {
    mkdirSync(join(folder, path, '..'), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
  const main = `import { appVersion } from ${JSON.stringify(OWN)}; console.log(JSON.stringify(appVersion(process.argv[2]) ?? null))`

  beforeAll(() => {
    put('app/package.json', '{ "name": "shop", "version": "3.1.4" }')
    put('app/dist/package.json', '{ "type": "module" }')
    put('app/dist/main.mjs', main)
    put('app/node_modules/tool/package.json', '{ "name": "tool", "version": "9.9.9" }')
    put('app/node_modules/tool/run.mjs', main)
    put('bare/main.mjs', main)
    put('long/package.json', JSON.stringify({ name: 'long', version: 'x'.repeat(500) }))
    put('long/main.mjs', main)
    put('broken/package.json', '{ "name": ')
    put('broken/main.mjs', main)
  })

  /** Runs a main module, as an app's process would, and returns the version that it finds. */
  function found(path: string, { cwd = 'bare', env = {}, given = [] as string[] } = {}): unknown {
    const options = { cwd: join(folder, cwd), env: { PATH: process.env['PATH'], ...env }, encoding: 'utf8' } as const
    const { stdout, stderr } = spawnSync(process.execPath, [join(folder, path), ...given], options)
    expect(stderr).toBe('')
    return JSON.parse(stdout)
  }

  test('is that of the nearest package.json of the main module that has one', () => {
    expect(found('app/dist/main.mjs')).toBe('3.1.4')
  })

  test('is that of the current folder where the main module is a tool that runs the app', () => {
    expect(found('app/node_modules/tool/run.mjs', { cwd: 'app/dist' })).toBe('3.1.4')
  })

  test('is what the variable says, and an option before that; of at most 100 characters', () => {
    const env = { PHASELOCK_APP_VERSION: '2026-11-26' }
    expect(found('app/dist/main.mjs', { env })).toBe('2026-11-26')
    expect(found('app/dist/main.mjs', { env, given: ['4.0.0'] })).toBe('4.0.0')
    expect(found('app/dist/main.mjs', { env: { PHASELOCK_APP_VERSION: ' ' } })).toBe('3.1.4')
    expect(found('long/main.mjs')).toBe('x'.repeat(100))
  })

  test('is unknown where there is none', () => {
    expect([found('bare/main.mjs'), found('broken/main.mjs')]).toEqual([null, null])
  })
})
