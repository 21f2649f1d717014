import { Unavailable } from '../../phases/index.js'
import {
  AdmissionDenied,
  InvalidResource,
  KubernetesConflict,
  KubernetesError,
  KubernetesForbidden,
  NamespaceMissing,
  NamespaceTerminating,
  QuotaExceeded,
  type Request,
} from './errors.js'
import type { HttpAnswer } from './transport.js'

/** The body of an unsuccessful answer, as far as the server sent it. */
export interface Status {
  readonly message?: string
  readonly reason?: string
  readonly details?: {
    readonly name?: string
    readonly kind?: string
    readonly retryAfterSeconds?: number
    readonly causes?: readonly { readonly reason?: string; readonly message?: string; readonly field?: string }[]
  }
}

const TEXT_LIMIT = 1_000
/** The limit for a page that doesn't come from an API server. */
const PAGE_LIMIT = 200
const THROTTLED = 429
/** The wording of a refusal by RBAC (and every other authorizer); admission words its refusals differently. */
const NOT_ALLOWED = /\bcannot (\w+) (?:resource|path) "/
/** A field that the kind doesn't have, or of another type: an apply is answered with 500 then. */
const NOT_TYPED = /^failed to create typed patch object /
const OVER_QUOTA = /\bexceeded quota\b/

export function statusOf(answer: HttpAnswer): Status {
  // Otherwise it is a proxy's page, or empty: the text is all there is.
  return asKind(answer, 'Status') ?? { message: answer.text.slice(0, TEXT_LIMIT) }
}

/** The body if it is JSON of this kind. Proxies, and other programs at a server's address, answer something else. */
export function asKind(answer: HttpAnswer, kind: string): object | undefined {
  try {
    const body: unknown = JSON.parse(answer.text)
    if (typeof body === 'object' && body !== null && (body as { kind?: unknown }).kind === kind) return body
  } catch {
    // Not JSON.
  }
  return undefined
}

/**
 * The error that an answer stands for. An answer that can't come from an API server (a load balancer's page, a login form, another program's
 * 404) says nothing about an object: the cluster counts as unreachable.
 */
export function errorOf(request: Request, answer: HttpAnswer): Error {
  const { status } = answer
  const { message = '', reason, details } = statusOf(answer)
  const words = message || `${status} ${reason ?? ''}`.trim()
  const retryAfterMs = answer.retryAfterMs ?? (details?.retryAfterSeconds || 0) * 1_000
  if (status === 500 && NOT_TYPED.test(words))
    return new InvalidResource(`${what(request)}: ${words}`, request, words, status)
  if (status === THROTTLED || status >= 500) return unavailable(request, `${status}: ${words}`, retryAfterMs)
  if (status === 401) return unavailable(request, `it refuses the credentials of its kubeconfig (401 ${words})`)
  if (!asKind(answer, 'Status')) return notAnApiServer(request, answer)
  const made = (Class: typeof KubernetesError, says = `${what(request)}: ${words}`) =>
    new Class(says, request, words, status)
  if (status === 409) return made(KubernetesConflict)
  if (status === 403) {
    if (details?.causes?.some((cause) => cause.reason === 'NamespaceTerminating')) return made(NamespaceTerminating)
    if (OVER_QUOTA.test(words)) return made(QuotaExceeded)
    const verb = NOT_ALLOWED.exec(words)?.[1]
    return verb ? made(KubernetesForbidden, missingRight({ ...request, verb }, words)) : made(AdmissionDenied)
  }
  if (status === 404 && details?.kind === 'namespaces' && request.resource !== 'namespaces') {
    return made(NamespaceMissing)
  }
  if (status === 400 && /admission webhook .* denied/.test(words)) return made(AdmissionDenied)
  if (status === 400 || status === 413 || status === 422) return made(InvalidResource)
  return made(KubernetesError)
}

/** The cap on a delay requested by a server, or by a page in between: after a day the server is tried again. */
const DAY_MS = 86_400_000

/** The cluster can't be reached now: its documents wait, without using attempts. */
export function unavailable(request: Request, why: string, retryAfterMs?: number, cause?: unknown): Unavailable {
  const options = !retryAfterMs ? { cause } : { cause, retryAfter: `${Math.min(retryAfterMs, DAY_MS)}ms` as const }
  return new Unavailable(`cluster ${request.cluster} could not be asked to ${what(request)}: ${why}`, options)
}

export function notAnApiServer(request: Request, { status, text }: HttpAnswer): Unavailable {
  const page = text.trim().slice(0, PAGE_LIMIT)
  return unavailable(request, `what answers at its address isn't an API server (${status}: ${page || 'an empty page'})`)
}

/** The request in words, for messages: `patch ingresses.networking.k8s.io web in namespace gw-7`. */
export function what({ verb, resource, object, namespace }: Request): string {
  const place = namespace === undefined ? '' : ` in namespace ${namespace}`
  return `${verb} ${resource}${object === undefined ? '' : ` ${object}`}${place}`
}

function missingRight(request: Request, words: string): string {
  const { verb, resource, namespace, cluster } = request
  const where = namespace === undefined ? 'in the whole cluster' : `in namespace ${namespace}`
  return `expected the account to have the right to ${verb} ${resource} ${where} of cluster ${cluster}, it hasn't: add the verb to its Role (${words})`
}
