import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { KubeConfig, KubernetesObjectApi, VersionApi } from '@kubernetes/client-node'

/** Part of this repository's tests; not included in the installed package. */
const CONTROL_PLANE = new URL('../../test/kubernetes/control-plane/control-plane.mjs', import.meta.url)

interface ControlPlane {
  readonly kubeconfig: string
  stop(): Promise<void>
}

/** The cluster that the demo works in. */
export interface DemoCluster {
  readonly config: KubeConfig
  readonly objects: KubernetesObjectApi
  /** `v1.35.4` */
  readonly version: string
  close(): Promise<void>
}

/** Thrown if there is no cluster to show anything on. */
export class NoCluster extends Error {
  override readonly name = 'NoCluster'
}

/**
 * The cluster that KUBECONFIG names, otherwise a control plane of the demo's own, built from this repository.
 * @throws NoCluster if there is neither, or it has no cert-manager; what starting a control plane throws
 */
export async function openDemoCluster(note: (text: string) => void): Promise<DemoCluster> {
  const config = new KubeConfig()
  let close = async () => {}
  if (process.env['KUBECONFIG']) config.loadFromDefault()
  else {
    const controlPlane = await startControlPlane(note)
    close = () => controlPlane.stop()
    config.loadFromFile(controlPlane.kubeconfig)
  }
  try {
    const { gitVersion } = await config.makeApiClient(VersionApi).getCode()
    const objects = KubernetesObjectApi.makeApiClient(config)
    await objects.list('cert-manager.io/v1', 'Certificate', 'default')
    return { config, objects, version: gitVersion, close }
  } catch (error) {
    await close()
    const { message } = error as Error
    throw new NoCluster(`expected a cluster with cert-manager, got: ${message}`)
  }
}

async function startControlPlane(note: (text: string) => void): Promise<ControlPlane> {
  if (!existsSync(fileURLToPath(CONTROL_PLANE))) {
    throw new NoCluster(
      'expected KUBECONFIG to name a cluster for tests, with cert-manager, it is not set; in the repository of Phaselock the demo builds a control plane of its own',
    )
  }
  const { startControlPlane: start } = await import(CONTROL_PLANE.href)
  note('starting a Kubernetes control plane')
  return start({ note })
}
