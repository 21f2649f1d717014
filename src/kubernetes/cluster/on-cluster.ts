import type { Handler, Outcome, RunningStep, Step } from '../../phases/index.js'
import {
  AdmissionDenied,
  BeingDeleted,
  InvalidResource,
  KubernetesConflict,
  KubernetesForbidden,
  NamespaceMissing,
  NamespaceTerminating,
  NotOwned,
  QuotaExceeded,
  UnknownKind,
} from '../api/errors.js'

/** Errors that a person has to resolve: the document is parked with the server's message. */
const FOR_A_PERSON = [QuotaExceeded, InvalidResource, AdmissionDenied, NotOwned]
/** Errors that pass, or are corrected in the cluster: the document waits, with the reason. */
const PASSING = [
  KubernetesConflict,
  KubernetesForbidden,
  BeingDeleted,
  NamespaceTerminating,
  NamespaceMissing,
  UnknownKind,
]

/**
 * Makes an ordinary handler from one that works in a cluster.
 * @param resolve finds the cluster: a HeldCluster (`cluster.hold(doc, step, lifecycle)`), alone or with more (a region's settings). It
 *   may throw `Unavailable`: then the document waits
 * @param handler errors of the cluster that it doesn't catch become outcomes. The document waits after a conflict, a missing right, a
 *   namespace that is being deleted or doesn't exist, an object that is being deleted, or an unknown kind. It is parked, with the server's
 *   message, after an exceeded quota, an invalid object, a policy's refusal, or an object of another owner. Any other error is rethrown:
 *   Unavailable backs off without using attempts, the rest uses them
 */
export function onCluster<Next extends string, Doc, Where>(
  resolve: (doc: Readonly<Doc>, step: RunningStep) => Where | Promise<Where>,
  handler: (doc: Readonly<Doc>, step: Step<Next, Doc>, cluster: Where) => Promise<Outcome<Next, Doc>>,
): Handler<Next, Doc> {
  return async (doc, step) => {
    try {
      return await handler(doc, step, await resolve(doc, step))
    } catch (error) {
      if (FOR_A_PERSON.some((Class) => error instanceof Class)) return step.park((error as Error).message)
      if (PASSING.some((Class) => error instanceof Class)) return step.wait((error as Error).message, { on: 'cluster' })
      throw error
    }
  }
}
