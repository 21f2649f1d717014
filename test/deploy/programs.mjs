import { fileURLToPath } from 'node:url'
import { goModuleFolder, goProgram } from '../../tools/servers/go-program.mjs'

const folder = (name) => fileURLToPath(new URL(`go/${name}`, import.meta.url))
const PROGRAMS = {
  kustomize: { module: folder('render'), package: 'sigs.k8s.io/kustomize/kustomize/v5' },
  helm: { module: folder('render'), package: 'helm.sh/helm/v4/cmd/helm' },
  rules: { module: folder('rules'), package: '.' },
  actionlint: { module: folder('actionlint'), package: 'github.com/rhysd/actionlint/cmd/actionlint' },
}
const DEFINITIONS = {
  prometheusOperator: 'github.com/prometheus-operator/prometheus-operator',
  keda: 'github.com/kedacore/keda/v2',
}

/**
 * What reads manifests, rules and workflows in tests, built from Go modules as the control plane is (tools/servers/go-program.mjs): 2 to 3
 * minutes on two cores the first time, then kept in the cache folder.
 */
export const deployProgram = (name, note) => goProgram({ name, ...PROGRAMS[name], note })

/** Where the modules' files are in which the Prometheus operator and KEDA define their kinds. */
export const definitionsFolder = (of) => goModuleFolder(folder('definitions'), DEFINITIONS[of])

/** All of it, one after the other: each build uses all cores. */
export async function prepareAll(note) {
  for (const name of Object.keys(PROGRAMS)) await deployProgram(name, note)
  for (const of of Object.keys(DEFINITIONS)) await definitionsFolder(of)
}
