import type { Outcome, Step } from 'phaselock'
import type { HeldCluster, KubernetesObject } from 'phaselock/kubernetes'
import { creationTrouble, type Pod, type PodSecurity, podTrouble, type Site, type Trouble } from '../pods/index.js'
import { checkInstance } from './check-instance.js'
import type { Instance } from './documents.js'
import { INSTANCE_LABEL, type Manifests, manifestsOf, POD, REVISION_ANNOTATION, SERVICE } from './manifests.js'

/** The number of pods that are searched for a reason. */
const POD_LIMIT = 100

type RollOut = Outcome<'Started', Instance>

/**
 * Makes the cluster match the document, and waits until it does: `deployment`, `service`, `ready`. If the owner writes
 * in the meantime, the next check notices it, and the rollout starts over.
 */
export async function rollOut(
  doc: Readonly<Instance>,
  step: Step<'Started', Instance>,
  { cluster, place }: Site,
  security: PodSecurity,
): Promise<RollOut> {
  const checked = checkInstance(doc)
  if ('problem' in checked) return step.park(checked.problem)
  const manifests = manifestsOf(checked.spec, { ...place, security, restarted: doc.restarted })
  if (step.name === 'service') return putService(doc, step, cluster, manifests)
  if (step.name === 'ready' && doc.applied === manifests.revision) return ready(doc, step, cluster, manifests)
  await cluster.ensure(manifests.deployment)
  return step.again({ step: 'service', set: { applied: manifests.revision } })
}

async function putService(
  doc: Readonly<Instance>,
  step: Step<'Started', Instance>,
  cluster: HeldCluster,
  { deployment, service }: Manifests,
): Promise<RollOut> {
  if (service) {
    await cluster.ensure(service)
    const { name, namespace } = service.metadata
    return step.again({ step: 'ready', set: { address: `${name}.${namespace}.svc` } })
  }
  if (doc.address != null) {
    const removal = await cluster.remove({ ...SERVICE, metadata: deployment.metadata })
    if (!removal.done) return step.wait(removal.text, { on: 'removal' })
  }
  return step.again({ step: 'ready', set: { address: null } })
}

async function ready(
  doc: Readonly<Instance>,
  step: Step<'Started', Instance>,
  cluster: HeldCluster,
  manifests: Manifests,
): Promise<RollOut> {
  const readiness = await cluster.ready(manifests.deployment)
  if (readiness.done) return step.moveTo('Started', { set: { trouble: null, stoppedBecause: null } })
  // It was removed: create it again.
  if (!readiness.object) return step.again({ step: 'deployment' })
  const trouble = await troubleOf(cluster, readiness.object, manifests)
  const message = trouble?.message ?? null
  const set = message === (doc.trouble ?? null) ? {} : { set: { trouble: message } }
  return step.wait(message ?? readiness.text, { on: 'readiness', ...set })
}

/** The reason that keeps the pods of a Deployment from running. Pods that only exist until new ones are ready don't count. */
async function troubleOf(
  cluster: HeldCluster,
  deployment: KubernetesObject,
  { podRevision }: Manifests,
): Promise<Trouble | undefined> {
  const { name, namespace } = deployment.metadata
  const labels = `${INSTANCE_LABEL}=${name}`
  const pods = (await cluster.list(POD, { namespace, labels, limit: POD_LIMIT })) as unknown as Pod[]
  const current = pods.filter(({ metadata }) => metadata.annotations?.[REVISION_ANNOTATION] === podRevision)
  return podTrouble(current) ?? cannotMakePods(deployment)
}

interface Conditions {
  readonly status?: { readonly conditions?: readonly { type: string; status: string; message?: string }[] }
}

function cannotMakePods(deployment: KubernetesObject): Trouble | undefined {
  const { status } = deployment as Conditions
  const failure = status?.conditions?.find((one) => one.type === 'ReplicaFailure' && one.status === 'True')
  return failure && creationTrouble(failure.message ?? '')
}
