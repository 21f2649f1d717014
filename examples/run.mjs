/**
 * Runs the examples: `node examples/run.mjs [nest-app] [without-nest]`, all of them unless named. They import 'phaselock' as a user
 * would, so the package must be built. MONGODB_URI is used if it is set, else a local database.
 */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

const folder = import.meta.dirname
const root = join(folder, '..')

/** Node runs TypeScript by leaving the types out; decorators need the compiler. */
const EXAMPLES = {
  'without-nest': { compile: false, main: 'without-nest/main.ts' },
  'nest-app': { compile: true, main: 'dist/nest-app/main.js' },
}

const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(EXAMPLES)
const unknown = names.filter((name) => !(name in EXAMPLES))
if (unknown.length > 0) fail(`expected ${Object.keys(EXAMPLES).join(' or ')}, got ${unknown.join(', ')}`)
if (!existsSync(join(root, 'dist/index.js'))) fail('expected the package to be built, it is not; run `npm run build`')

for (const name of names) {
  const { compile, main } = EXAMPLES[name]
  console.log(`\n=== ${name}\n`)
  if (compile) run(join(root, 'node_modules/typescript/bin/tsc'), '-p', join(folder, 'tsconfig.json'))
  run(join(folder, main))
}

function run(...args) {
  const { status } = spawnSync(process.execPath, ['--disable-warning=ExperimentalWarning', ...args], {
    stdio: 'inherit',
  })
  if (status !== 0) process.exit(status ?? 1)
}

function fail(message) {
  console.error(message)
  process.exit(2)
}
