import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals'
import { AppFolder, ROOT } from './app-folder.js'

jest.setTimeout(600_000)

const COMMONJS = ['ts-jest.commonjs', 'swc.commonjs']
const ES_MODULES = ['ts-jest.esm', 'swc.esm']
/** The oldest Node that the page names, as npm has it. */
const NODE_22 = `node-${process.platform}-${process.arch}`

/** The set-ups of docs/guides/jest.md, in one app on each Nest. */
describe.each([
  { nest: 12, schedule: 12 },
  { nest: 11, schedule: 6 },
])('on Nest $nest', ({ nest, schedule }) => {
  let folder: AppFolder
  beforeAll(async () => {
    folder = await AppFolder.make([
      ...['common', 'core', 'platform-express', 'testing'].map((name) => `@nestjs/${name}@${nest}`),
      ...[`@nestjs/schedule@${schedule}`, 'reflect-metadata', 'rxjs', '@types/node@24', 'typescript@5.9'],
      ...['jest@30', '@jest/globals@30', 'ts-jest@29', '@swc/core@1', '@swc/jest@0.2', `${NODE_22}@22.19.0`],
    ])
    await folder.copyExample('nest-app')
    await copy('mailbox.e2e-spec.ts', 'src/mailbox.e2e-spec.ts')
  })
  afterAll(() => folder?.remove())

  const copy = (name: string, to = name) => copyFile(join(ROOT, 'examples/nest-app', name), join(folder.path, to))

  const passes = async (node: string, name: string) => {
    const config = `jest.${name}.config.cjs`
    await copy(config)
    const jestCli = ['--experimental-vm-modules', 'node_modules/jest/bin/jest.js', '--config', config, '--silent']
    const ran = await folder.run(node, ...jestCli, '--testTimeout=400000')
    expect(ran).toMatchObject({ code: 0, err: expect.stringMatching(/Tests: +4 passed, 4 total/) })
    expect(ran.err).not.toContain('did not exit')
  }

  test.each([...COMMONJS, ...ES_MODULES])('%s: the test file of the guide passes, and Jest ends by itself', (name) =>
    passes('node', name),
  )

  test.each(ES_MODULES)('%s on Node 22.19 as well', (name) => passes(`node_modules/${NODE_22}/bin/node`, name))
})
