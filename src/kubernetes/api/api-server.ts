import type { IncomingMessage } from 'node:http'
import { checkOptions, t } from '../../options/index.js'
import { type Duration, durationMs } from '../../time/index.js'
import { asKind, errorOf, notAnApiServer, statusOf, unavailable } from './answers.js'
import type { Circuit } from './circuit.js'
import type { KubeconfigSource } from './credentials.js'
import {
  Discovery,
  groupPath,
  type ListedGroup,
  type ListedResource,
  type ResourceKind,
  resourceName,
} from './discovery.js'
import { InvalidResource, type Request, UnknownKind } from './errors.js'
import type { KindRef, KubernetesObject, ObjectRef } from './objects.js'
import { endedBy, type HttpAnswer, type HttpRequest, NoReply, Transport } from './transport.js'

const REQUEST_TIMEOUT: Duration = '10s'
/** The number of objects of a list per request. */
const PAGE = 500

interface Page {
  readonly items: readonly KubernetesObject[]
  readonly metadata: { readonly resourceVersion?: string; readonly continue?: string }
}

/** Options of `Cluster.of(...)`. */
export interface ClusterOptions {
  /** The name for messages; a region's name. */
  readonly name: string
  /** The server's address, and the account to use. */
  readonly kubeconfig: KubeconfigSource
  /** The time limit of one request. Default 10 s. */
  readonly requestTimeout?: Duration | undefined
  /** Refuses requests while the server doesn't answer. Default: every request is sent. */
  readonly circuit?: Circuit | undefined
}

const kubeconfig = t.where<KubeconfigSource>(
  (value) => typeof value === 'string' || typeof (value as { file?: unknown } | null)?.file === 'string',
  t.expecting("a kubeconfig ('default', 'inCluster', its text, or { file: '...' })"),
)

const clusterOptions = t.object({
  name: t.name,
  kubeconfig,
  requestTimeout: t.withDefault(t.durationText('1ms', '1d'), REQUEST_TIMEOUT),
  circuit: t.anything<Circuit>(),
} satisfies t.TypesOf<ClusterOptions>)

/** Selects the objects that `list` returns. */
export interface ListOptions {
  /** Default: all namespaces. */
  readonly namespace?: string | undefined
  /** A label selector. */
  readonly labels?: string | undefined
  /** A field selector. */
  readonly fields?: string | undefined
  /** At most this many, in the server's order. Default: all, 500 in each request. */
  readonly limit?: number | undefined
  /** Ends the request; the call throws its reason. */
  readonly signal?: AbortSignal | undefined
}

/** @internal */
export interface WatchOptions extends ListOptions {
  /** The point to continue from. */
  readonly resourceVersion?: string | undefined
  /** The server ends the stream after this time. Default: half an hour to an hour, chosen by the server. */
  readonly timeoutSeconds?: number | undefined
}

/** Limits on a single call. */
export interface CallOptions {
  /** Ends the request; the call throws its reason. */
  readonly signal?: AbortSignal | undefined
  /** Capped at the cluster's own `requestTimeout`. */
  readonly timeoutMs?: number | undefined
}

/** One request about one kind. @internal */
export interface Call extends CallOptions {
  readonly verb: string
  readonly kind: KindRef
  readonly namespace?: string | undefined
  readonly object?: string | undefined
  /** Part of the object: `log` of a pod. */
  readonly subresource?: string | undefined
  readonly http: Pick<HttpRequest, 'method' | 'query' | 'body' | 'contentType'>
}

/**
 * One API server. Nothing is read or connected before the first request. All methods throw `Unavailable` if the server can't
 * be reached (no connection, no answer in time, 401, 429, 5xx, an unreadable kubeconfig), UnknownKind, KubernetesForbidden or
 * another KubernetesError.
 */
export class ApiServer {
  /** The name for messages; a region's name. */
  readonly name: string
  /** The time limit of one request, in ms. */
  readonly requestTimeoutMs: number
  /** Refuses requests while the server doesn't answer; undefined: every request is sent. */
  readonly circuit: Circuit | undefined
  private readonly transport: Transport
  private readonly discovery: Discovery

  protected constructor(protected readonly options: ClusterOptions) {
    const { name, kubeconfig, requestTimeout, circuit } = checkOptions('a Cluster', clusterOptions, options)
    this.name = name
    this.circuit = circuit
    this.requestTimeoutMs = durationMs(requestTimeout)
    this.transport = new Transport(kubeconfig)
    this.discovery = new Discovery((path) => this.resources(path))
  }

  /** Returns the object as the server has it now; undefined if there is none. */
  async get(ref: ObjectRef, options: CallOptions = {}): Promise<KubernetesObject | undefined> {
    const { name, namespace } = ref.metadata
    const call: Call = { ...options, verb: 'get', kind: ref, namespace, object: name, http: { method: 'GET' } }
    const answer = await this.answerTo(call)
    if (answer.status === 404) return undefined
    return JSON.parse(answer.text)
  }

  /** Returns all objects, fetched page by page; with `limit` only the first ones. */
  async list(kind: KindRef, options: ListOptions = {}): Promise<KubernetesObject[]> {
    const found: KubernetesObject[] = []
    let next: string | undefined
    do {
      const { items, metadata } = await this.page(kind, options, next)
      found.push(...items)
      next = options.limit === undefined ? metadata.continue : undefined
    } while (next)
    return found
  }

  /** Returns a page of a list. @param from the `continue` of the previous page @internal */
  async page(kind: KindRef, options: ListOptions, from: string | undefined): Promise<Page> {
    const { namespace, labels, fields, limit = PAGE, signal } = options
    const query = { labelSelector: labels, fieldSelector: fields, limit, continue: from }
    const answer = await this.answerTo({ verb: 'list', kind, namespace, signal, http: { method: 'GET', query } })
    const { items, metadata = {} } = JSON.parse(answer.text) as Partial<Page>
    // Items of a list lack apiVersion and kind.
    const { apiVersion, kind: name } = kind
    return { metadata, items: (items ?? []).map((item) => ({ ...item, apiVersion, kind: name })) }
  }

  /** Returns text that the server keeps for an object: `text(pod, 'log', { tailLines: 20 })`; undefined if there is no such object. */
  async text(
    ref: ObjectRef,
    subresource: string,
    query: HttpRequest['query'] = {},
    options: CallOptions = {},
  ): Promise<string | undefined> {
    const { name, namespace } = ref.metadata
    const about = { kind: ref, namespace, object: name, subresource }
    const answer = await this.answerTo({ ...options, ...about, verb: 'get', http: { method: 'GET', query } })
    return answer.status === 404 ? undefined : answer.text
  }

  /**
   * Sends any request about a kind. A 404 for get and delete is returned as an answer; every other failure throws.
   * @internal
   */
  async answerTo(call: Call): Promise<HttpAnswer> {
    const target = await this.target(call)
    const answer = await this.send(call, target)
    if (answer.status !== 404 || isAboutObject(answer)) return checked(target.request, answer)
    // No handler for this path: the kind is gone, or its definition was recreated with another plural.
    this.discovery.forget(call.kind)
    const anew = await this.target(call)
    return checked(anew.request, await this.send(call, anew))
  }

  /**
   * Opens a list-and-watch stream of a kind: lines of JSON, `{ type, object }`. The time limit applies only to opening it.
   * @internal
   */
  async watchStream(kind: KindRef, options: WatchOptions): Promise<IncomingMessage> {
    const { namespace, labels, fields, signal, resourceVersion, timeoutSeconds } = options
    const selected = { labelSelector: labels, fieldSelector: fields, resourceVersion, timeoutSeconds }
    const query = { ...selected, watch: 'true', allowWatchBookmarks: 'true' }
    const call: Call = { verb: 'watch', kind, namespace, signal, http: { method: 'GET', query } }
    const { path, request } = await this.target(call)
    try {
      const opened = await this.transport.open({ ...call.http, path, signal, timeoutMs: this.requestTimeoutMs })
      if ('status' in opened) throw errorOf(request, opened)
      return opened
    } catch (error) {
      throw error instanceof NoReply ? unavailable(request, error.message, undefined, error) : error
    }
  }

  /**
   * Requests the API groups of the server: succeeds if it answers and accepts the credentials.
   * @throws Unavailable, KubernetesError
   */
  async reach(): Promise<void> {
    await this.apiGroups()
  }

  /** Returns its API groups, without the core one. @internal */
  async apiGroups(): Promise<readonly ListedGroup[]> {
    const { request, answer } = await this.groups()
    return (listOf(request, answer, 'APIGroupList') as { groups?: ListedGroup[] }).groups ?? []
  }

  /** Returns the current resources of a group version, such as `apps/v1`. @internal */
  async resourcesOf(apiVersion: string): Promise<readonly ListedResource[]> {
    return (await this.resources(groupPath(apiVersion))) ?? []
  }

  /** Describes a call, for messages. @internal */
  async requestOf(call: Omit<Call, 'http'>): Promise<Request> {
    return (await this.target(call)).request
  }

  /** Closes its idle connections; it can still be used afterwards. */
  close(): void {
    this.transport.close()
  }

  private async target(call: Omit<Call, 'http'>): Promise<{ readonly path: string; readonly request: Request }> {
    const { kind, namespace, object, subresource, verb, signal } = call
    const found = await this.kindOf(kind, verb, signal)
    const scope = found.namespaced && namespace !== undefined ? `/namespaces/${encodeURIComponent(namespace)}` : ''
    const name = object === undefined ? '' : withSubresource(`/${encodeURIComponent(object)}`, subresource)
    const resource = withSubresource(resourceName(kind, found.plural), subresource)
    const request = { cluster: this.name, verb, resource, namespace, object }
    if (found.namespaced && object !== undefined && namespace === undefined)
      throw new InvalidResource(`expected ${kind.kind} ${object} to have a metadata.namespace, got none`, request)
    return { path: `${groupPath(kind.apiVersion)}${scope}/${found.plural}${name}`, request }
  }

  private async kindOf(kind: KindRef, verb: string, signal?: AbortSignal): Promise<ResourceKind> {
    // Other callers may wait for the same answer: the signal ends only this wait.
    const found = await endedBy(signal, this.discovery.find(kind))
    if (found) return found
    const request = { cluster: this.name, verb, resource: `${kind.kind} (${kind.apiVersion})` }
    const says = `expected cluster ${this.name} to know the kind ${kind.kind} of ${kind.apiVersion}, which it doesn't: install its CustomResourceDefinition`
    throw new UnknownKind(says, request)
  }

  private async resources(path: string): Promise<ListedResource[] | undefined> {
    const request: Request = { cluster: this.name, verb: 'get', resource: path }
    const answer = await this.exchange(request, { method: 'GET', path, timeoutMs: this.requestTimeoutMs })
    // For an unknown group an API server answers in plain text, as any other program would.
    if (answer.status === 404 && (await this.isApiServer())) return undefined
    return (listOf(request, answer, 'APIResourceList') as { resources?: ListedResource[] }).resources
  }

  private async isApiServer(): Promise<boolean> {
    const { answer } = await this.groups()
    return Boolean(asKind(answer, 'APIGroupList') ?? asKind(answer, 'Status'))
  }

  private async groups(): Promise<{ request: Request; answer: HttpAnswer }> {
    const request: Request = { cluster: this.name, verb: 'get', resource: '/apis' }
    const http = { method: 'GET', path: '/apis', timeoutMs: this.requestTimeoutMs } as const
    return { request, answer: await this.exchange(request, http) }
  }

  private async send(call: Call, { path, request }: { path: string; request: Request }): Promise<HttpAnswer> {
    const timeoutMs = Math.max(1, Math.ceil(Math.min(call.timeoutMs ?? this.requestTimeoutMs, this.requestTimeoutMs)))
    // The server gives up at the same time: the caller has gone.
    const http = { ...call.http, query: { ...call.http.query, timeout: `${timeoutMs}ms` } }
    return this.exchange(request, { ...http, path, timeoutMs, signal: call.signal })
  }

  private async exchange(request: Request, http: HttpRequest): Promise<HttpAnswer> {
    const entry = this.circuit?.enter()
    if (entry && 'reason' in entry) throw unavailable(request, entry.reason)
    // A log is read from a node, so how long it takes proves nothing about the server.
    if (request.resource === 'pods/log') entry?.ended('cancelled')
    try {
      const answer = await this.transport.send(http)
      if (answer.status === 401) entry?.ended('failed', 'it refuses the credentials of its kubeconfig')
      entry?.ended('reply')
      return answer
    } catch (error) {
      if (!(error instanceof NoReply)) throw error
      entry?.ended('failed', error.message)
      throw unavailable(request, error.message, undefined, error)
    } finally {
      entry?.ended('cancelled')
    }
  }
}

function listOf(request: Request, answer: HttpAnswer, kind: string): object {
  if (answer.status !== 200) throw errorOf(request, answer)
  const list = asKind(answer, kind)
  if (!list) throw notAnApiServer(request, answer)
  return list
}

function checked(request: Request, answer: HttpAnswer): HttpAnswer {
  if (answer.status >= 200 && answer.status < 300) return answer
  // To a reader this means that there is no such object, or no such namespace.
  const isGone = answer.status === 404 && asKind(answer, 'Status') !== undefined
  if (isGone && (request.verb === 'get' || request.verb === 'delete')) return answer
  throw errorOf(request, answer)
}

const withSubresource = (of: string, name: string | undefined) => (name === undefined ? of : `${of}/${name}`)

/** A 404 that names an object is about the object; otherwise the path itself isn't known. */
const isAboutObject = (answer: HttpAnswer): boolean => statusOf(answer).details?.name !== undefined
