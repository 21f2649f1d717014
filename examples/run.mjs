/**
 * Runs the examples: `node examples/run.mjs [without-nest] [nest-app] [kubernetes]`, all of them unless named. They import 'phaselock'
 * as a user would, so the package must be built. MONGODB_URI is used if it is set, else a local database; KUBECONFIG if it is set, else the
 * control plane of the tests, which needs Go. Without a cluster that example is skipped; in CI (`CI` is set), or named, it fails.
 */
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'

const folder = import.meta.dirname
const root = join(folder, '..')

/** Node runs TypeScript by leaving the types out; decorators need the compiler. */
const EXAMPLES = {
  'without-nest': { compile: false, main: 'without-nest/main.ts' },
  'nest-app': { compile: true, main: 'dist/nest-app/main.js' },
  kubernetes: { compile: false, main: 'kubernetes/main.ts', cluster: true },
}

const named = process.argv.slice(2)
const names = named.length > 0 ? named : Object.keys(EXAMPLES)
const unknown = names.filter((name) => !(name in EXAMPLES))
if (unknown.length > 0) fail(`expected ${Object.keys(EXAMPLES).join(' or ')}, got ${unknown.join(', ')}`)
if (!existsSync(join(root, 'dist/index.js'))) fail('expected the package to be built, it is not; run `npm run build`')

let controlPlane
try {
  for (const name of names) {
    const { compile, main, cluster } = EXAMPLES[name]
    console.log(`\n=== ${name}\n`)
    const env = cluster ? await clusterFor(name) : {}
    if (!env) continue
    if (compile) await run({}, join(root, 'node_modules/typescript/bin/tsc'), '-p', join(folder, 'tsconfig.json'))
    await run(env, join(folder, main))
  }
} finally {
  await controlPlane?.stop()
}

/** What an example needs in its environment to find a cluster; undefined: it is skipped. */
async function clusterFor(name) {
  if (process.env.KUBECONFIG) return {}
  const hasGo = (process.env.PATH ?? '').split(delimiter).some((path) => path && existsSync(join(path, 'go')))
  if (!hasGo) {
    const missing = 'expected KUBECONFIG to name a cluster, or Go 1.26 in PATH to build one; there is neither'
    if (process.env.CI || named.includes(name)) fail(`${name}: ${missing}`)
    console.log(`skipped: ${missing}`)
    return undefined
  }
  const { startControlPlane } = await import('../test/kubernetes/control-plane/control-plane.mjs')
  controlPlane ??= await startControlPlane({ note: (text) => console.log(`control plane: ${text}`) })
  return { KUBECONFIG: controlPlane.kubeconfig }
}

async function run(env, ...args) {
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', ...args], {
    stdio: 'inherit',
    env: { ...process.env, ...env },
  })
  const status = await new Promise((resolve, reject) => child.once('error', reject).once('close', resolve))
  if (status === 0) return
  await controlPlane?.stop()
  process.exit(status ?? 1)
}

function fail(message) {
  console.error(message)
  process.exit(2)
}
