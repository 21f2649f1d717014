import { readFile } from 'node:fs/promises'
import { BSON, type Collection } from 'mongodb'
import { Unavailable } from '../../phases/index.js'
import type { Clock, Duration } from '../../time/index.js'
import { Circuit } from '../api/circuit.js'
import type { KubeconfigSource } from '../api/credentials.js'
import { KubernetesError } from '../api/errors.js'
import { Cluster } from '../cluster/cluster.js'
import { type Region, RegionUnavailable, regionOf } from './region.js'
import { type ClusterSource, REGION_COLLECTION, type RegionSpec, readRegion } from './region-document.js'

/** The part shared by all regions of one process. */
export interface RegionContext {
  readonly regions: Collection<{ _id: string }>
  readonly home: () => Cluster
  readonly requestTimeout: Duration
  readonly clock: Clock
  /** The time for which a Region stays fresh after it was read, in milliseconds. */
  readonly freshMs: number
}

/** A kubeconfig in a Secret or file is read less often than the Region, which costs one read by `_id`. */
const KUBECONFIG_FRESH_FACTOR = 3
/** Requests to an old cluster may be in progress when its kubeconfig changes. */
const CLOSE_AFTER_REQUESTS = 2

/** Waiting documents ask again after 30 s at most, unless their lockTimeout is longer. */
const FORGOTTEN_AFTER_MS = 120_000

type Verdict = { readonly region: Region } | { readonly problem: string }

/** One region as known to this process: read when it is requested, and again once it is no longer fresh. */
export class KnownRegion {
  private verdict: Verdict | undefined
  private reading: Promise<Verdict> | undefined
  private neededMs = Number.NEGATIVE_INFINITY
  private readMs = Number.NEGATIVE_INFINITY
  private kubeconfigReadMs = Number.NEGATIVE_INFINITY
  private document: string | undefined
  private kubeconfig: string | undefined
  private cluster: Cluster | undefined

  constructor(
    readonly name: string,
    private readonly context: RegionContext,
  ) {}

  /** @throws RegionUnavailable; the database's own errors */
  async get(): Promise<Region> {
    const verdict = await this.fresh()
    if ('problem' in verdict) throw new RegionUnavailable(this.name, verdict.problem)
    return verdict.region
  }

  /** Notes that a document needs this region. */
  needed(): void {
    this.neededMs = this.context.clock.monotonicMs()
  }

  /** True if it can't be used and no document has needed it for a while. */
  get isForgotten(): boolean {
    const unneededMs = this.context.clock.monotonicMs() - this.neededMs
    return this.verdict !== undefined && 'problem' in this.verdict && unneededMs > FORGOTTEN_AFTER_MS
  }

  /** The reason why its documents wait, as far as is known. */
  get trouble(): string | undefined {
    if (this.verdict && 'problem' in this.verdict) return this.verdict.problem
    return this.cluster?.circuit?.lastFailure
  }

  close(): void {
    this.cluster?.close()
  }

  private fresh(): Promise<Verdict> {
    const nowMs = this.context.clock.monotonicMs()
    if (this.verdict && nowMs - this.readMs < this.context.freshMs) return Promise.resolve(this.verdict)
    this.reading ??= this.read(nowMs).finally(() => {
      this.reading = undefined
    })
    return this.reading
  }

  private async read(nowMs: number): Promise<Verdict> {
    const found = await this.context.regions.findOne({ _id: this.name })
    this.verdict = await this.judge(found, nowMs)
    this.readMs = nowMs
    return this.verdict
  }

  private async judge(found: object | null, nowMs: number): Promise<Verdict> {
    if (!found)
      return {
        problem: `expected a document ${this.name} in the collection ${REGION_COLLECTION}, there is none (removed, or never written): its documents wait until there is one`,
      }
    const spec = readRegion(found)
    if ('problems' in spec) return { problem: spec.problems.join('; ') }
    const document = BSON.EJSON.stringify(found)
    const isSame = document === this.document && this.verdict !== undefined && 'region' in this.verdict
    const isKubeconfigFresh = nowMs - this.kubeconfigReadMs < this.context.freshMs * KUBECONFIG_FRESH_FACTOR
    if (isSame && isKubeconfigFresh && !this.cluster?.circuit?.lastFailure) return this.verdict!
    const trouble = await this.findCluster(spec, nowMs)
    if (trouble !== undefined) return { problem: trouble }
    this.document = document
    return { region: regionOf(this.name, this.cluster!, spec) }
  }

  /** If the home cluster can't be reached, a kubeconfig that was read before stays in use. */
  private async findCluster(spec: RegionSpec, nowMs: number): Promise<string | undefined> {
    const reference = JSON.stringify(spec.cluster)
    try {
      const found = await findKubeconfig(spec.cluster, this.context.home)
      if ('problem' in found) return found.problem
      const { source, version } = found
      this.kubeconfigReadMs = nowMs
      const kubeconfig = `${reference}\n${version}`
      if (this.cluster && kubeconfig === this.kubeconfig) return undefined
      this.replace(source)
      this.kubeconfig = kubeconfig
      return undefined
    } catch (error) {
      if (!(error instanceof Unavailable || error instanceof KubernetesError)) throw error
      if (this.cluster && this.kubeconfig?.startsWith(`${reference}\n`)) return undefined
      return `its kubeconfig can't be read: ${error.message}`
    }
  }

  private replace(kubeconfig: KubeconfigSource): void {
    const old = this.cluster
    const { requestTimeout, clock } = this.context
    this.cluster = Cluster.of({ name: this.name, kubeconfig, requestTimeout, circuit: new Circuit(clock) })
    if (old) setTimeout(() => old.close(), old.requestTimeoutMs * CLOSE_AFTER_REQUESTS).unref()
  }
}

/** The current kubeconfig with a version, which changes whenever its content does; or the problem, for the documents that wait. */
type Found = { readonly source: KubeconfigSource; readonly version: string } | { readonly problem: string }

/**
 * Reads the kubeconfig that a region refers to.
 * @param home the cluster whose Secrets hold kubeconfigs
 * @throws the errors of a request to the home cluster
 */
async function findKubeconfig(source: ClusterSource, home: () => Cluster): Promise<Found> {
  if (source.inCluster) return { source: 'inCluster', version: 'inCluster' }
  if (source.kubeconfigFile !== undefined) {
    const file = source.kubeconfigFile
    // Passed as a path and not as a string, so that files named relative to it are found.
    return readFile(file, 'utf8').then(
      (version) => ({ source: { file }, version }),
      ({ message }) => ({ problem: `expected a kubeconfig in the file ${file}, which can't be read: ${message}` }),
    )
  }
  const { namespace, name, key } = source.kubeconfig!.secret
  const secret = await home().get({ apiVersion: 'v1', kind: 'Secret', metadata: { namespace, name } })
  if (!secret) return { problem: `expected the Secret ${namespace}/${name}, which doesn't exist` }
  const data = (secret['data'] ?? {}) as Readonly<Record<string, string>>
  const encoded = data[key]
  if (encoded === undefined) {
    const keys = Object.keys(data).join(', ') || 'none'
    return { problem: `expected the Secret ${namespace}/${name} to have the key '${key}', got ${keys}` }
  }
  const text = Buffer.from(encoded, 'base64').toString('utf8')
  return { source: text, version: text }
}
