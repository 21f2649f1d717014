import { NotOwned, type ObjectRef, type Removal, UnknownKind } from '../../kubernetes/index.js'
import type { Step } from '../../phases/index.js'
import { certificateRef, ingressRef, secretRef } from './manifests.js'
import type { Site } from './parts.js'

/** Much longer than cert-manager works on one certificate at a time. */
const SETTLED_AFTER_MS = 2_000

/** The remaining objects, as the reason of a wait; undefined: none of this domain is left. */
type Remaining = string | undefined

/** Removes the Ingress; its host name is no longer served once it is gone. */
export const removeIngress = (site: Site): Promise<Remaining> => removeAll(site, [ingressRef(site.placed)])

/** Removes Certificates. They go before their Secrets: otherwise cert-manager would issue them again. */
export async function removeCertificates(site: Site, names: readonly string[]): Promise<Remaining> {
  const refs = names.map((name) => certificateRef(site.placed, name))
  return removeAll(site, refs)
}

/**
 * Removes the Secrets of certificates that are gone. cert-manager may be about to write the Secret of a certificate that was removed before it
 * was issued: if a Secret is missing, another check follows.
 * @param step its `waitedMs` counts from the time when the certificates were gone
 */
export async function removeSecrets(
  site: Site,
  names: readonly string[],
  step: Pick<Step<string, never>, 'waitedMs'>,
): Promise<Remaining> {
  const refs = names.map((name) => secretRef(site.placed, name))
  const found = await Promise.all(refs.map((ref) => site.cluster.get(ref)))
  const there = refs.filter((_, n) => found[n])
  const remaining = await removeAll(site, there)
  if (remaining !== undefined) return remaining
  const isSettled = found.every(Boolean) || step.waitedMs >= SETTLED_AFTER_MS
  return isSettled ? undefined : 'cert-manager to have let go of the Secret'
}

/** All certificates that may exist. */
export const certificatesOf = ({ placed: { certificate, leftover } }: Pick<Site, 'placed'>): readonly string[] =>
  certificate === null ? leftover : [certificate, ...leftover]

async function removeAll(site: Site, refs: readonly ObjectRef[]): Promise<Remaining> {
  const removals = await Promise.all(refs.map((ref) => removeOwn(site, ref)))
  const reasons = removals.flatMap((removal) => (removal.done ? [] : [removal.text]))
  return reasons.length === 0 ? undefined : reasons.join('; ')
}

/** Removes one object. An object of this name with another owner isn't this domain's; nor is one of a kind that isn't installed. */
async function removeOwn({ cluster }: Site, ref: ObjectRef): Promise<Removal> {
  try {
    return await cluster.remove(ref)
  } catch (error) {
    if (error instanceof NotOwned || error instanceof UnknownKind) return { done: true, text: error.message }
    throw error
  }
}
