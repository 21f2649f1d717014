import type { Db } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { checkOptions, t } from '../../options/index.js'
import { type Clock, type Duration, durationMs, systemClock } from '../../time/index.js'
import { Circuit } from '../api/circuit.js'
import { Cluster } from '../cluster/cluster.js'
import { KnownRegion, type RegionContext } from './known-region.js'
import { type Region, type RegionSource, type RegionStatus, RegionUnavailable } from './region.js'
import { REGION_COLLECTION } from './region-document.js'

/** Options of `new Regions(...)`. */
export interface RegionsOptions {
  /** The database with the Region documents. */
  readonly db: Db
  /** The region of documents that name none. Default: they wait. */
  readonly default?: string | undefined
  /** The cluster whose Secrets hold kubeconfigs. Default: the cluster of this process. */
  readonly home?: Cluster | undefined
  /** The time limit of one request to a region's cluster. Default 5s. */
  readonly requestTimeout?: Duration | undefined
  /** The time for which a Region document stays fresh after it was read; kubeconfigs three times this long. Default 2s. */
  readonly refresh?: Duration | undefined
  /** For tests. Default: the process's monotonic clock. */
  readonly clock?: Clock | undefined
}

const regionsOptions = t.object({
  db: t.aDatabase,
  default: t.optional(t.name),
  home: t.optional(t.having<Cluster>(['get', 'list'], 'a Cluster')),
  requestTimeout: t.withDefault(t.durationText('1ms', '1d'), '5s'),
  refresh: t.withDefault(t.durationText('1ms', '1d'), '2s'),
  clock: t.anything<Clock>(),
} satisfies t.TypesOf<RegionsOptions>)

/**
 * The regions that Region documents describe (docs/regions.md). A document is read when it is needed, and again once that is 2 s
 * old. If one is invalid, only the documents of that region wait.
 */
export class Regions implements RegionSource {
  private readonly known = new Map<string, KnownRegion>()
  private readonly context: RegionContext
  private readonly byDefault: string | undefined
  private ownHome: Cluster | undefined

  /** @throws InvalidOptions */
  constructor(options: RegionsOptions) {
    const {
      db,
      home,
      requestTimeout,
      refresh,
      clock = systemClock,
      ...others
    } = checkOptions('new Regions', regionsOptions, options)
    this.byDefault = others.default
    this.context = {
      regions: protocolCollection(db, REGION_COLLECTION),
      home: () => home ?? this.inCluster(),
      requestTimeout,
      clock,
      freshMs: durationMs(refresh),
    }
  }

  /**
   * @throws RegionUnavailable if there is no such region, it is invalid, or its kubeconfig can't be read
   * @throws the database's own errors
   */
  async of(name?: unknown): Promise<Region> {
    const asked = name ?? this.byDefault
    if (asked === undefined) throw new RegionUnavailable('(none)', 'the document names none, and there is no default')
    if (typeof asked !== 'string' || asked === '') {
      throw new RegionUnavailable(JSON.stringify(asked), "expected a region's name")
    }
    const known = this.knownAs(asked)
    known.needed()
    return await known.get()
  }

  async usable(): Promise<Region[]> {
    const known = (await this.names()).map((name) => this.knownAs(name))
    const regions = await Promise.all(known.map((one) => one.get().catch(() => undefined)))
    return regions.filter((region) => region !== undefined)
  }

  /** The names of all Region documents. */
  async names(): Promise<string[]> {
    const found = await this.context.regions.find({}, { projection: { _id: 1 }, sort: { _id: 1 } }).toArray()
    return found.map(({ _id }) => String(_id))
  }

  /** Probes each cluster; one that doesn't answer takes until the time limit of a request. */
  async list(): Promise<RegionStatus[]> {
    return Promise.all((await this.names()).map((name) => this.probe(name)))
  }

  /** Regions that this process needed but couldn't use at the last attempt, with the reason. */
  troubled(): RegionStatus[] {
    // Forget names that documents no longer use, such as misspelt ones.
    for (const [name, region] of this.known) {
      if (!region.isForgotten) continue
      this.known.delete(name)
      region.close()
    }
    return [...this.known.values()]
      .map(({ name, trouble }) => ({ name, trouble }))
      .filter(({ trouble }) => trouble !== undefined)
  }

  /** Reads the region again if it is no longer fresh, and requests an answer from its cluster. */
  async probe(name: string): Promise<RegionStatus> {
    try {
      const { cluster } = await this.knownAs(name).get()
      await cluster.reach()
      return { name, trouble: undefined }
    } catch (error) {
      return { name, trouble: error instanceof Error ? error.message : String(error) }
    }
  }

  /** Closes idle connections. */
  close(): void {
    for (const region of this.known.values()) region.close()
    this.ownHome?.close()
  }

  private knownAs(name: string): KnownRegion {
    const known = this.known.get(name) ?? new KnownRegion(name, this.context)
    this.known.set(name, known)
    return known
  }

  private inCluster(): Cluster {
    const { requestTimeout, clock } = this.context
    this.ownHome ??= Cluster.of({ name: 'home', kubeconfig: 'inCluster', requestTimeout, circuit: new Circuit(clock) })
    return this.ownHome
  }
}
