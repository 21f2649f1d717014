/**
 * `npm run test:system [-- patterns and options of Jest]`: builds the programs that the named tests need before any of them begins, as the
 * first time takes minutes (without Go those tests are skipped and say why), then runs Jest with jest.system.config.mjs.
 */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** What builds programs, each a few seconds when all is built, and the folders of the tests that need them. */
const BUILDS = [
  {
    script: 'test/kubernetes/control-plane/build.mjs',
    folders: ['kubernetes', 'tasks', 'deploy', 'examples', 'chaos'],
  },
  { script: 'test/deploy/build.mjs', folders: ['deploy'] },
  { script: 'tools/servers/build-s3.mjs', folders: ['tasks', 'tools'] },
]
const JEST = ['--experimental-vm-modules', '--disable-warning=ExperimentalWarning', 'node_modules/jest/bin/jest.js']

const cwd = fileURLToPath(new URL('..', import.meta.url))
const given = process.argv.slice(2)
const patterns = given.filter((argument) => !argument.startsWith('-'))
const lists = given.some((argument) => ['--listTests', '--help', '--showConfig'].includes(argument))

for (const { script, folders } of lists ? [] : BUILDS) {
  const isNeeded = patterns.length === 0 || patterns.some((one) => folders.some((folder) => one.includes(folder)))
  if (!isNeeded) continue
  process.stderr.write(`building what tests need: ${script}\n`)
  const { status } = spawnSync(process.execPath, [script], { cwd, stdio: ['ignore', 2, 2] })
  if (status !== 0) process.stderr.write(`${script} failed: its tests are skipped or fail, and say why\n`)
}
const jest = spawnSync(process.execPath, [...JEST, '-c', 'jest.system.config.mjs', ...given], { cwd, stdio: 'inherit' })
process.exitCode = jest.status ?? 1
