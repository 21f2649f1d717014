import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals'
import { AppFolder, ROOT } from './app-folder.js'

jest.setTimeout(600_000)

/** The set-ups of docs/guides/jest.md, in one app. */
let folder: AppFolder
beforeAll(async () => {
  folder = await AppFolder.make([
    ...['common', 'core', 'platform-express', 'testing', 'schedule'].map((name) => `@nestjs/${name}@12`),
    ...['reflect-metadata', 'rxjs', '@types/node@24', 'typescript@5.9'],
    ...['jest@30', '@jest/globals@30', 'ts-jest@29', '@swc/core@1', '@swc/jest@0.2'],
  ])
  await folder.copyExample('nest-app')
  await copy('mailbox.e2e-spec.ts', 'src/mailbox.e2e-spec.ts')
})
afterAll(() => folder?.remove())

const copy = (name: string, to = name) => copyFile(join(ROOT, 'examples/nest-app', name), join(folder.path, to))

test.each(['ts-jest.commonjs', 'ts-jest.esm', 'swc.commonjs', 'swc.esm'])(
  '%s: the test file of the guide passes, and Jest ends by itself',
  async (name) => {
    const config = `jest.${name}.config.cjs`
    await copy(config)
    const jestCli = ['--experimental-vm-modules', 'node_modules/jest/bin/jest.js', '--config', config, '--silent']
    const ran = await folder.run('node', ...jestCli, '--testTimeout=400000')
    expect(ran).toMatchObject({ code: 0, err: expect.stringMatching(/Tests: +4 passed, 4 total/) })
    expect(ran.err).not.toContain('did not exit')
  },
)
