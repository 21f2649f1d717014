import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, test } from '@jest/globals'

const root = resolve(import.meta.dirname, '../..')
const run = promisify(execFile)

describe('what npm publishes', () => {
  let files: string[]

  beforeAll(async () => {
    // --ignore-scripts: the tests have built already, and another build would pull dist from under the others.
    const { stdout } = await run('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: root })
    files = JSON.parse(stdout)[0].files.map((file: { path: string }) => file.path)
  })

  test('is the built code, its types, the docs and nothing else', () => {
    const allowed = /^(dist\/.+\.(js|d\.ts)|docs\/.+\.(md|svg)|package\.json|README\.md|LICENSE|CHANGELOG\.md)$/
    expect(files.filter((file) => !allowed.test(file))).toEqual([])
    expect(files).toEqual(expect.arrayContaining(['package.json', 'README.md', 'LICENSE', 'dist/index.js']))
  })

  test('has every file that package.json points to', async () => {
    const { bin, exports, types } = JSON.parse(await readFile(resolve(root, 'package.json'), 'utf8'))
    const targets = [
      types,
      ...Object.values(bin),
      ...Object.values(exports).flatMap((one) => Object.values(Object(one))),
    ]
    const paths = targets.filter((one): one is string => typeof one === 'string' && one.startsWith('./dist'))
    expect(paths.length).toBeGreaterThan(4)
    for (const path of paths) expect(files).toContain(path.replace('./', ''))
  })

  test('depends on no package of the runtime workspace', async () => {
    const { dependencies, optionalDependencies } = JSON.parse(await readFile(resolve(root, 'package.json'), 'utf8'))
    expect(Object.keys(dependencies).filter((name) => /^(node-linux|@0q|@nestjs|mongodb-memory)/.test(name))).toEqual(
      [],
    )
    expect(optionalDependencies).toBeUndefined()
  })

  test('the installed command starts with a shebang', async () => {
    expect(await readFile(resolve(root, 'dist/cli/main.js'), 'utf8')).toMatch(/^#!\/usr\/bin\/env node\n/)
  })
})
