/**
 * `npm run test:system [-- patterns and options of Jest]`: builds the programs that the chosen tests need before any of them begins, as
 * the first time takes minutes (without Go those tests are skipped and say why), then runs Jest with jest.system.config.mjs.
 */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** What builds programs, each a few seconds when all is built, and which tests need them. */
const BUILDS = [
  {
    script: 'test/kubernetes/control-plane/build.mjs',
    neededBy: /\/test\/(kubernetes|tasks|deploy|examples|chaos\/kubernetes)\b/,
  },
  { script: 'test/deploy/build.mjs', neededBy: /\/test\/deploy\// },
  { script: 'tools/servers/build-s3.mjs', neededBy: /\/test\/(tasks|tools)\// },
  { script: 'tools/servers/install-wheels.mjs', neededBy: /\/test\/repositories\// },
]
const JEST = ['--experimental-vm-modules', '--disable-warning=ExperimentalWarning', 'node_modules/jest/bin/jest.js']

const cwd = fileURLToPath(new URL('..', import.meta.url))
const given = process.argv.slice(2)
const jest = (args, stdio) =>
  spawnSync(process.execPath, [...JEST, '-c', 'jest.system.config.mjs', ...args], { cwd, stdio, encoding: 'utf8' })

if (!given.some((argument) => ['--listTests', '--help', '--showConfig'].includes(argument))) {
  const asked = given.filter((argument) => !/^--(json|outputFile)\b/.test(argument))
  const { stdout: chosen } = jest([...asked, '--listTests'], ['ignore', 'pipe', 2])
  for (const { script, neededBy } of BUILDS) {
    if (!neededBy.test(chosen)) continue
    process.stderr.write(`building what tests need: ${script}\n`)
    const { status } = spawnSync(process.execPath, [script], { cwd, stdio: ['ignore', 2, 2] })
    if (status !== 0) process.stderr.write(`${script} failed: its tests are skipped or fail, and say why\n`)
  }
}
process.exitCode = jest(given, 'inherit').status ?? 1
