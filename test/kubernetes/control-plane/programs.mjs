import { access, constants, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { goModuleFolder, goProgram } from '../../../tools/servers/go-program.mjs'

const SERVERS = fileURLToPath(new URL('go/servers', import.meta.url))
const ADDONS = fileURLToPath(new URL('go/addons', import.meta.url))
const CERT_MANAGER = 'github.com/cert-manager/cert-manager'
const KWOK = 'sigs.k8s.io/kwok'
/** What KUBEBUILDER_ASSETS may bring; kwok and cert-manager are started as those that are built here. */
const GIVEN = ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler']
const VERSION_PACKAGES = ['k8s.io/component-base/version', 'k8s.io/client-go/pkg/version']

/**
 * The programs of a control plane: Kubernetes' own from the folder KUBEBUILDER_ASSETS where that has them, the others built from
 * Go modules and kept in the cache folder. Nothing built yet: 6 to 10 minutes on two cores; Go's build cache filled: 20 s.
 *
 * @param note told of each program that has to be built
 * @returns `paths`: name to path; `customResources`: name to the text of cert-manager's definitions; `stages`: kwok's files
 * @throws ServerMissing without Go, ServerFailed when something doesn't build or can't be downloaded
 */
export async function controlPlanePrograms(note = () => undefined) {
  const version = await kubernetesVersion()
  const kubernetes = { module: SERVERS, ldflags: `-s -w ${versionFlags(version)}` }
  const wanted = [
    { name: 'etcd', module: SERVERS, package: 'go.etcd.io/etcd/server/v3' },
    { name: 'kube-apiserver', package: 'k8s.io/kubernetes/cmd/kube-apiserver', ...kubernetes },
    { name: 'kube-controller-manager', package: 'k8s.io/kubernetes/cmd/kube-controller-manager', ...kubernetes },
    { name: 'kube-scheduler', package: 'k8s.io/kubernetes/cmd/kube-scheduler', ...kubernetes },
    { name: 'kwok', module: ADDONS, package: 'sigs.k8s.io/kwok/cmd/kwok' },
    { name: 'cert-manager', module: ADDONS, package: './cert-manager' },
  ]
  const paths = {}
  // One after the other: each build uses all cores and much memory.
  for (const program of wanted)
    paths[program.name] = (await given(program.name)) ?? (await goProgram({ ...program, note }))
  return { paths, customResources: await certManagerDefinitions(), stages: await kwokStages() }
}

/** The program of the folder KUBEBUILDER_ASSETS, `undefined` if it isn't there. */
async function given(name) {
  const folder = process.env['KUBEBUILDER_ASSETS']
  if (!folder || !GIVEN.includes(name)) return undefined
  const path = join(folder, name)
  return access(path, constants.X_OK).then(
    () => path,
    () => undefined,
  )
}

async function kubernetesVersion() {
  const [, version] = /\sk8s\.io\/kubernetes (v\d\S+)/.exec(await readFile(join(SERVERS, 'go.mod'), 'utf8'))
  return version
}

/** Kubernetes learns its own version from the linker only. */
function versionFlags(version) {
  const [major, minor] = version.slice(1).split('.')
  const values = { gitVersion: version, gitMajor: major, gitMinor: minor, gitTreeState: 'clean' }
  const flags = VERSION_PACKAGES.flatMap((path) =>
    Object.entries(values).map(([name, value]) => `-X ${path}.${name}=${value}`),
  )
  return flags.join(' ')
}

/** From the module that the controllers are built from, so that both fit. */
async function certManagerDefinitions() {
  const folder = join(await goModuleFolder(ADDONS, CERT_MANAGER), 'deploy/crds')
  const files = (await readdir(folder)).filter((name) => name.endsWith('.yaml'))
  // Such a file is called GROUP_PLURAL.yaml.
  const read = async (file) => {
    const [group, plural] = file.replace('.yaml', '').split('_')
    return { group, plural, text: await readFile(join(folder, file), 'utf8') }
  }
  return Promise.all(files.map(read))
}

/** What kwok does to nodes and pods: it has no behaviour built in. */
async function kwokStages() {
  const folder = join(await goModuleFolder(ADDONS, KWOK), 'kustomize/stage')
  const filesOf = async (kind) => {
    const names = await readdir(join(folder, kind))
    return names
      .filter((name) => name.startsWith('pod-') || name.startsWith('node-'))
      .map((name) => join(folder, kind, name))
  }
  return [...(await filesOf('node/fast')), ...(await filesOf('pod/fast'))]
}
