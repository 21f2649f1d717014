import type { Collection } from 'mongodb'
import { BSON } from 'mongodb'
import { Unavailable } from '../../phases/index.js'
import type { Clock, Duration } from '../../time/index.js'
import { Circuit } from '../circuit.js'
import { Cluster } from '../cluster.js'
import { KubernetesError } from '../errors.js'
import { findKubeconfig } from './kubeconfigs.js'
import { type Region, RegionUnavailable, regionOf } from './region.js'
import { REGION_COLLECTION, type RegionSpec, readRegion } from './region-document.js'

/** What all regions of one process share. */
export interface RegionContext {
  readonly regions: Collection<{ _id: string }>
  readonly home: () => Cluster
  readonly requestTimeout: Duration
  readonly clock: Clock
  /** How long a Region that was read stays fresh, in milliseconds. */
  readonly freshMs: number
}

/** A kubeconfig in a Secret or file is read less often than the Region, which is one read by `_id`. */
const KUBECONFIG_FRESH_FACTOR = 3
/** An old cluster's requests may be in progress when its kubeconfig changes. */
const CLOSE_AFTER_REQUESTS = 2

/** Documents that wait ask again after 30 s at most, unless their lockTimeout is longer. */
const FORGOTTEN_AFTER_MS = 120_000

type Verdict = { readonly region: Region } | { readonly problem: string }

/** One region as this process knows it: read when it is asked for, and again when that is no longer fresh. */
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

  /** A document asks for this region. */
  needed(): void {
    this.neededMs = this.context.clock.monotonicMs()
  }

  /** It can't be used, and no document has asked for it for a while. */
  get isForgotten(): boolean {
    const unneededMs = this.context.clock.monotonicMs() - this.neededMs
    return this.verdict !== undefined && 'problem' in this.verdict && unneededMs > FORGOTTEN_AFTER_MS
  }

  /** Why its documents wait, as far as is known. */
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

  /** If the home cluster can't be asked, a kubeconfig that was read before stays in use. */
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

  private replace(kubeconfig: Parameters<typeof Cluster.of>[0]['kubeconfig']): void {
    const old = this.cluster
    const { requestTimeout, clock } = this.context
    this.cluster = Cluster.of({ name: this.name, kubeconfig, requestTimeout, circuit: new Circuit(clock) })
    if (old) setTimeout(() => old.close(), old.requestTimeoutMs * CLOSE_AFTER_REQUESTS).unref()
  }
}
