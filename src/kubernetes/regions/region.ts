import { createHash } from 'node:crypto'
import { BSON } from 'mongodb'
import { idKey } from '../../lock/index.js'
import { Unavailable } from '../../phases/index.js'
import type { Duration } from '../../time/index.js'
import type { Cluster } from '../cluster/cluster.js'
import {
  GATEWAY_ID,
  type GatewaySettings,
  type RegionDocument,
  type RegionSpec,
  readRegion,
} from './region-document.js'

const LABEL = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/
const LABEL_LENGTH = 63
const HASH_LENGTH = 24
const LOOKS_LIKE_A_HASH = /^([0-9a-f]{24}|x[0-9a-f]{24})$/

/** The place where documents of a region have their resources. */
export interface Region {
  /** The `_id` of its Region document. */
  readonly name: string
  /** Its cluster: the same object for as long as its credentials are the same. */
  readonly cluster: Cluster
  /** True if gateways create their own namespaces. */
  readonly createNamespace: boolean
  /** Settings for serving its gateways. */
  readonly gateway: GatewaySettings
  /** The only namespace, if the rule names one for all documents. */
  readonly namespace: string | undefined
  /** Returns the namespace of a document: by its gatewayId, else its `_id`. */
  namespaceFor(doc: { readonly _id?: unknown; readonly gatewayId?: unknown }): string
}

/** The source of a lifecycle's regions: `new Regions(...)`, or one of your own. */
export interface RegionSource {
  /**
   * @param name the name in a document; undefined: the default region
   * @throws RegionUnavailable: the document waits, and nothing is parked
   */
  of(name?: unknown): Promise<Region>
  /** Returns all regions that can be used now. */
  usable(): Promise<Region[]>
  /** Returns regions that this process needed but couldn't use at the last attempt. */
  troubled?(): RegionStatus[]
  /** Checks whether a region can be used now. */
  probe?(name: string): Promise<RegionStatus>
}

/** The status of a region, for people. */
export interface RegionStatus {
  /** The `_id` of its Region document. */
  readonly name: string
  /** Undefined if its cluster answers and accepts the credentials; otherwise the reason. */
  readonly trouble: string | undefined
}

/** A region that can't be used now: there is no such Region document, it is invalid, or its kubeconfig can't be read. */
export class RegionUnavailable extends Unavailable {
  constructor(
    /** The region's name as given in the document. */
    readonly region: string,
    why: string,
    options: { retryAfter?: Duration; cause?: unknown } = {},
  ) {
    super(`region ${region} can't be used: ${why}`, options)
  }
}

/** Settings of a region that would not be valid in a Region document. */
export class InvalidRegion extends Error {
  override readonly name = 'InvalidRegion'
  constructor(
    /** The region's name. */
    readonly region: string,
    /** One sentence for each problem. */
    readonly problems: readonly string[],
  ) {
    super(`region ${region} can't be used:\n${problems.map((problem) => `  - ${problem}`).join('\n')}`)
  }
}

export function regionOf(name: string, cluster: Cluster, spec: RegionSpec): Region {
  const { namespace, createNamespace, gateway } = spec
  return {
    name,
    cluster,
    createNamespace,
    gateway,
    namespace: namespace.includes(GATEWAY_ID) ? undefined : namespace,
    namespaceFor: (doc) => namespaceBy(namespace, doc.gatewayId ?? doc._id),
  }
}

/**
 * A source with one region defined in code, for a deployment with a single cluster: no Region document is needed.
 * Documents name it, or no region at all.
 * @throws InvalidRegion
 */
export function singleRegion(
  name: string,
  cluster: Cluster,
  settings: Pick<RegionDocument, 'namespace' | 'createNamespace' | 'gateway'>,
): RegionSource {
  const spec = readRegion({ _id: name, cluster: { inCluster: true }, ...settings })
  if ('problems' in spec) throw new InvalidRegion(name, spec.problems)
  const region = regionOf(name, cluster, spec)
  return {
    async of(asked = name) {
      if (asked === name) return region
      throw new RegionUnavailable(String(asked), `the only region is ${name}`)
    },
    usable: async () => [region],
  }
}

/**
 * The namespace for a gatewayId: the rule with the id in place of `{gatewayId}`. An id that can't be part of
 * a name (or could be confused with another id) is replaced by its hash. Distinct ids have distinct namespaces.
 */
function namespaceBy(rule: string, id: unknown): string {
  if (!rule.includes(GATEWAY_ID)) return rule
  const room = LABEL_LENGTH - (rule.length - GATEWAY_ID.length)
  return rule.replace(GATEWAY_ID, () => labelOf(id, room))
}

function labelOf(id: unknown, room: number): string {
  if (id instanceof BSON.ObjectId && room >= HASH_LENGTH) return id.toHexString()
  if (typeof id === 'string' && id.length <= room && LABEL.test(id) && !LOOKS_LIKE_A_HASH.test(id)) return id
  const hash = createHash('sha256').update(idKey(id)).digest('hex').slice(0, HASH_LENGTH)
  return `x${hash}`.slice(0, Math.max(room, 12))
}
