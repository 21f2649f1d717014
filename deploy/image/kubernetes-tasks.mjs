/**
 * PHASELOCK_LIFECYCLES=/app/kubernetes-tasks.mjs: all task kinds that ship, in the regions that Region documents name. Gateways bring
 * domains and instances, which also stand by themselves.
 */

import { Cluster, Regions } from 'phaselock/kubernetes'
import { apiGatewayLifecycles } from 'phaselock/tasks'
import { bucketLifecycle, instanceLifecycles, kubernetesJobLifecycles } from 'phaselock-tasks'

/** Its service account's; KUBECONFIG outside of a cluster. */
const home = Cluster.of({ name: 'home', kubeconfig: 'default' })

/** Credentials of a bucket's storage: `{ namespace, name }` of a Secret with accessKeyId and secretAccessKey. */
async function secrets({ namespace, name }) {
  const found = await home.get({ apiVersion: 'v1', kind: 'Secret', metadata: { namespace, name } })
  if (!found) throw new Error(`there is no Secret ${namespace}/${name}`)
  const text = (key) => Buffer.from(found.data?.[key] ?? '', 'base64').toString()
  return { accessKeyId: text('accessKeyId'), secretAccessKey: text('secretAccessKey') }
}

export default function lifecycles({ db }) {
  const regions = new Regions({ db, home })
  return [
    ...apiGatewayLifecycles({ db, regions, instances: instanceLifecycles }).all,
    ...kubernetesJobLifecycles({ db, regions }).all,
    bucketLifecycle({ db, secrets }),
  ]
}
