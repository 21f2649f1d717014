import type { Document, Filter } from 'mongodb'
import { onCluster } from '../../kubernetes/index.js'
import { canBeId, idKey, isParked, NO_ID } from '../../lock/index.js'
import { type Handler, Holder, type RunningStep, type Step } from '../../phases/index.js'
import { idText } from '../kit/index.js'
import { BY_GATEWAY, BY_ID, type ChildKind, type Collections, collectionOf } from './collections.js'
import type { ApiGateway } from './documents.js'

const BATCH = 1_000
const NOT_GONE = { phase: { $ne: 'Deleted' } }

/** The children with a lifecycle of their own. */
const LIFECYCLES = {
  gatewayDatabase: 'gateway-database',
  instance: 'instance',
  runtimeDomain: 'runtime-domain',
} as const satisfies Partial<Record<ChildKind, string>>

export type LivingKind = keyof typeof LIFECYCLES

/**
 * The interval at which a waiting gateway rechecks its child. A child that is parked, or changed by hand, notifies no one: its gateway reports
 * it after at most this time.
 */
const RECHECK = '10s'

/** The result of `create`: `there`, or the reason why the child can't be used. */
export type Creation = 'there' | 'leaving' | { readonly belongsTo: unknown }

/**
 * A gateway in one of its steps, and the changes that this step may make to the gateway's children.
 *
 * Invariants, also for a step that continues after another replica holds the gateway: it creates no child; it changes and
 * deletes no child that was added after it had lost the gateway; it changes no child that a step with a higher fence has written.
 */
export class HeldGateway {
  readonly id: unknown
  readonly gatewayId: unknown
  private readonly holder: Holder

  constructor(
    readonly collections: Collections,
    gateway: Readonly<ApiGateway>,
    step: RunningStep,
  ) {
    this.id = gateway._id
    this.gatewayId = gateway.gatewayId ?? gateway._id
    this.holder = new Holder(collections.of('gateway'), gateway, step)
  }

  /** The problem with the gatewayId, if any: ids of some kinds can't distinguish children. */
  get idProblem(): string | undefined {
    const id = this.gatewayId
    if (id !== null && canBeId(id)) return undefined
    return `expected a gatewayId (or _id) that is ${NO_ID}, nor null, got ${idText(id)}`
  }

  /** Returns the `_id` of the other gateway that has this gatewayId: the one that created its database document. */
  async otherOwner(): Promise<unknown> {
    const database = await this.collections.of('gatewayDatabase').findOne({ _id: { $eq: this.gatewayId as never } })
    const owner = database?.['gateway']
    return owner === undefined || idKey(owner) === idKey(this.id) ? undefined : owner
  }

  /** Creates a child unless it exists: at most one for each `_id`, no matter how often it is repeated. */
  async create(kind: ChildKind, child: Document): Promise<Creation> {
    const complete = { ...child, gatewayId: this.gatewayId, gatewayFence: this.holder.fence }
    await this.holder.insert(complete, { collection: collectionOf(kind) })
    const found = await this.collections.of(kind).findOne({ _id: child['_id'] })
    if (!found) throw this.holder.lost()
    if (idKey(found['gatewayId']) !== idKey(this.gatewayId)) return { belongsTo: found['gatewayId'] }
    return isLeaving(found) ? 'leaving' : 'there'
  }

  /** Sets fields (expressions too) of all children of a kind, and marks them with this step's fence. */
  write(kind: ChildKind, fields: Document): Promise<void> {
    const notYetWritten = { gatewayFence: { $not: { $gte: this.holder.fence } } }
    const set = [{ $set: { ...fields, gatewayFence: this.holder.fence } }]
    return this.eachBatch(kind, notYetWritten, (filter) =>
      this.collections.of(kind).updateMany(filter, set, { hint: BY_ID }),
    )
  }

  delete(kind: ChildKind): Promise<void> {
    return this.eachBatch(kind, {}, (filter) => this.collections.of(kind).deleteMany(filter, { hint: BY_ID }))
  }

  /**
   * Sets the wanted state of children with a lifecycle of their own; their lifecycle carries it out. A child
   * that is to be deleted keeps that state, and so does one that is to apply changes before it runs.
   */
  tell(kind: ChildKind, state: 'Running' | 'Stopped'): Promise<void> {
    const kept = state === 'Running' ? ['Updating', 'Restarting', 'Deleted'] : ['Deleted']
    return this.write(kind, { state: { $cond: [{ $in: ['$state', kept] }, '$state', state] } })
  }

  /**
   * Sets children with a lifecycle of their own to `Deleted`; their lifecycle carries it out.
   * @returns a child of the kind that isn't gone; undefined once all are
   */
  async tellToGo(kind: LivingKind): Promise<Document | undefined> {
    const told = { $set: { state: 'Deleted' } }
    await this.eachBatch(kind, { state: { $ne: 'Deleted' }, ...NOT_GONE }, (filter) =>
      this.collections.of(kind).updateMany(filter, told, { hint: BY_ID }),
    )
    return this.unlike(kind, NOT_GONE)
  }

  /** Returns a child of a kind that isn't yet in the wanted state; undefined if all are. */
  async unlike(kind: ChildKind, which: Filter<Document>): Promise<Document | undefined> {
    return (await this.collections.of(kind).findOne({ ...this.own(), ...which }, { hint: BY_GATEWAY })) ?? undefined
  }

  /**
   * Ends a step that can't continue before a child is in one of these phases. The child's move there ends the gateway's sleep; until then
   * the gateway reports what the child waits for.
   */
  async await<Next extends string>(
    step: Step<Next, ApiGateway>,
    child: Document,
    { kind, phases, on = kind }: { kind: LivingKind; phases: readonly string[]; on?: string },
  ): ReturnType<Handler<Next, ApiGateway>> {
    const target = { lifecycle: LIFECYCLES[kind], id: child['_id'], phases }
    const there = await step.waitFor(target, { recheck: RECHECK })
    if (there.done) return step.again(step.name === undefined ? {} : { step: step.name })
    return step.wait(troubleOf(collectionOf(kind), child), { on })
  }

  /** Returns true if a child of a kind exists; one that its own lifecycle has ended doesn't count. */
  async has(kind: ChildKind): Promise<boolean> {
    return (await this.unlike(kind, NOT_GONE)) !== undefined
  }

  private own(): Filter<Document> {
    return { gatewayId: { $eq: this.gatewayId }, gatewayFence: { $not: { $gt: this.holder.fence } } }
  }

  /**
   * Lists the children, then makes sure that the gateway is still held, then writes exactly the listed ones. A late writer can therefore only
   * reach children that existed while its step still held the gateway; it doesn't know later ones.
   */
  private async eachBatch(
    kind: ChildKind,
    which: Filter<Document>,
    write: (filter: Filter<Document>) => Promise<unknown>,
  ): Promise<void> {
    for (;;) {
      const found = await this.collections
        .of(kind)
        .find({ ...this.own(), ...which }, { projection: { _id: 1 }, hint: BY_GATEWAY, limit: BATCH })
        .toArray()
      if (found.length === 0) return
      await this.holder.assertHeld()
      const ids = found.map((child) => child['_id'])
      await write({ _id: { $in: ids as never[] }, ...this.own(), ...which })
    }
  }
}

const isLeaving = (child: Document): boolean =>
  child['state'] === 'Deleted' || child['phase'] === 'Deleting' || child['phase'] === 'Deleted'

export type GatewayStep<Next extends string> = (
  gateway: HeldGateway,
  ...args: Parameters<Handler<Next, ApiGateway>>
) => ReturnType<Handler<Next, ApiGateway>>

/** Turns errors of a cluster in a gateway's own step into outcomes, as for its children. */
export function inGateway<Next extends string>(
  collections: Collections,
  handler: GatewayStep<Next>,
): Handler<Next, ApiGateway> {
  return onCluster<Next, ApiGateway, HeldGateway>(
    async (doc, step) => {
      await collections.ensureIndexes()
      return new HeldGateway(collections, doc, step)
    },
    (doc, step, gateway) => handler(gateway, doc, step),
  )
}

/** The reason why a gateway waits for a child, for its `waitingFor`: "RuntimeDomain 42 is parked: host name ... is reserved by ...". */
function troubleOf(collection: string, child: Document): string {
  const name = `${collection} ${idText(child['_id'])}`
  const { progress, stoppedBecause, trouble } = child
  const message = progress?.error?.message ?? stoppedBecause ?? trouble ?? progress?.waitingFor
  const because = typeof message === 'string' ? `: ${message}` : ''
  return isParked(child) ? `${name} is parked${because}` : `${name} is in ${String(child['phase'])}${because}`
}

/** Switches the routing of the gateway's domains on or off; the triggers come next. */
export async function setRoutes<P extends string>(
  gateway: HeldGateway,
  active: boolean,
  step: Step<P, ApiGateway>,
): ReturnType<GatewayStep<P>> {
  await gateway.write('route', { active })
  return step.again({ step: 'triggers' })
}
