import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { type KubernetesObject, loadAllYaml } from '@kubernetes/client-node'
import { describeWhere, START_TIMEOUT_MS } from '../../kubernetes/support/availability.js'
import { deployProgram } from '../programs.mjs'

const run = promisify(execFile)
const note = (text: string) => process.stderr.write(`${text}\n`)

export const ROOT = fileURLToPath(new URL('../../../', import.meta.url))
export const KUSTOMIZE = join(ROOT, 'deploy/kustomize')
export const CHART = join(ROOT, 'deploy/helm/phaselock')
export { START_TIMEOUT_MS }

/** An object of any kind as a manifest has it. */
export type Manifest = KubernetesObject & { metadata: { name: string; namespace?: string } } & Record<string, any>

/** Tests that need programs built by Go; they are skipped, saying so, where it isn't there. */
export const describeWithGo = (name: string, body: () => void) => describeWhere(name, { own: true }, body)

/** `kustomize build`. */
export async function kustomize(folder: string): Promise<Manifest[]> {
  const { stdout } = await run(await deployProgram('kustomize', note), ['build', folder])
  return objectsIn(stdout)
}

/** `helm template` of a release named phaselock in the namespace phaselock. */
export async function helmTemplate(...args: string[]): Promise<Manifest[]> {
  const { stdout } = await helm('template', 'phaselock', CHART, '--namespace', 'phaselock', ...args)
  return objectsIn(stdout)
}

export async function helm(...args: string[]): Promise<{ stdout: string; stderr: string }> {
  const folders = ['CACHE', 'CONFIG', 'DATA'].map((kind) => [
    `HELM_${kind}_HOME`,
    join(process.env['PHASELOCK_TEST_FOLDER']!, 'helm', kind),
  ])
  const env = { ...process.env, ...Object.fromEntries(folders) }
  return run(await deployProgram('helm', note), args, { env, maxBuffer: 64 * 1024 * 1024 })
}

/** The objects of a text of YAML documents. */
export const objectsIn = (text: string) => (loadAllYaml(text) as (Manifest | undefined)[]).filter((one) => one != null)

export const nameOf = ({ kind, metadata }: Manifest) => `${kind} ${metadata.name}`

/** The one object of a kind. */
export function the(kind: string, objects: readonly Manifest[]): Manifest {
  const found = objects.filter((object) => object.kind === kind)
  if (found.length !== 1) throw new Error(`expected one ${kind}, got ${found.map(nameOf).join(', ') || 'none'}`)
  return found[0]!
}
