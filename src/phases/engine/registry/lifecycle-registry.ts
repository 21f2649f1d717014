import { createHash } from 'node:crypto'
import type { Collection, Db } from 'mongodb'
import { limitCommands, protocolCollection } from '../../../database/index.js'
import {
  type CancelRequest,
  type CensusReader,
  declareLimit,
  isInForce,
  KNOWN_FOR_MS,
  keepGraph,
  LIFECYCLES_COLLECTION,
  type LockTimeoutInForce,
  type LookResult,
  Paused,
  pauseText,
  readLockTimeouts,
  readOwnFields,
  type ServerClock,
  standInForLockTimeout,
} from '../../../lock/index.js'
import { typed } from '../../../options/index.js'
import { type Clock, formatMs } from '../../../time/index.js'
import type { LifecycleModel } from '../../model/model.js'
import { registeredFields } from '../../model/registered.js'
import type { Logger } from '../../reporting/logger.js'
import { requireDisjointFrom, type Territory, territoryOf } from './overlaps.js'

/** An entry with the fields of {@link registeredFields}, where the replica that started last is of a version that stores them. */
interface Registered {
  _id: string
  collection: string
  lockTimeout: number
  /** Its phases, as the replica that started last has them; absent if an older version wrote this. */
  phases?: string[]
  /** The time when a replica last reported that it looks after this lifecycle; at most a minute before any replica's last look. */
  handledAt?: Date
  /** Its callbacks; absent: it has no callbacks. */
  callbacks?: readonly string[] | undefined
  /** The digest of the definition with which a replica has completed its start last. */
  definition?: string
}

/** The most reads in a row: each may already be too old to use, if this process stands still or the database is slow. */
const MOST_READS = 3

/** The error when the lockTimeouts in force can't be known now; the next look may bring them. */
export class TermsOutdated extends Error {
  override readonly name = 'TermsOutdated'
  constructor(readonly ageMs: number) {
    const age = Number.isFinite(ageMs) ? `each was ${Math.round(ageMs)} ms old once it arrived` : 'it cannot be read'
    const expected = `expected a reading of ${LIFECYCLES_COLLECTION} from the last ${KNOWN_FOR_MS} ms`
    super(`${expected}, but ${age}; nothing is claimed or renewed until there is one`)
  }
}

/**
 * The lifecycles of a database and the lockTimeout in force for each. It is part of the data (leases and sleeps are encoded with it). So the first
 * replica's setting stands, and others adopt it and log where theirs differs.
 *
 * Invariant (docs/lock-protocol.md, point 10): leases are taken or renewed, and documents judged, only by a reading that is at most 5 s old.
 */
export class LifecycleRegistry {
  private readonly collection: Collection<Registered>
  private readonly inForce = new Map<string, LockTimeoutInForce>()
  private readonly pausedBy = new Map<string, Paused>()
  private askedAtMs = Number.NEGATIVE_INFINITY
  private readAtMs = Number.NEGATIVE_INFINITY
  private reading: Promise<unknown> | undefined
  private refreshed = Promise.withResolvers<void>()

  /** @param renewalDb the same database over another connection, so that a full pool keeps no replica from reading it */
  constructor(
    private readonly db: Db,
    private readonly renewalDb: Db,
    private readonly models: readonly LifecycleModel[],
    private readonly logger: Logger,
    private readonly clock: Clock,
    private readonly serverClock: ServerClock,
  ) {
    this.collection = protocolCollection<Registered>(db, LIFECYCLES_COLLECTION)
  }

  /**
   * Refuses to work beside another replica's lifecycle on the same documents. Called before this replica registers its own, so that a refused one
   * leaves no trace. Two that start at the same moment aren't detected.
   * @throws OverlappingLifecycles
   */
  async requireNoOverlap(): Promise<void> {
    requireDisjointFrom(this.models, await this.others(this.models.map((model) => model.collection)))
  }

  /** The phases of all other lifecycles in a lifecycle's collection, this replica's and others'. */
  async phasesBeside(model: LifecycleModel): Promise<string[]> {
    const others = await this.others([model.collection])
    return [...this.siblingPhases(model), ...others.flatMap((other) => other.phases)]
  }

  /** The phases of this replica's other lifecycles in a lifecycle's collection. */
  siblingPhases({ name, collection }: LifecycleModel): string[] {
    const siblings = this.models.filter((model) => model.name !== name && model.collection === collection)
    return siblings.flatMap((sibling) => territoryOf(sibling).phases)
  }

  private async others(collections: readonly string[]): Promise<Territory[]> {
    const own = this.models.map((model) => model.name)
    const others = { _id: { $nin: own }, collection: { $in: [...collections] } }
    const found = (await readOwnFields((how) =>
      this.collection.find(others, { projection: { collection: 1, phases: 1 }, ...how }).toArray(),
    )) as Registered[]
    // A person may have put anything there.
    const listed = (phases: unknown): string[] => (Array.isArray(phases) ? phases : [])
    return found.map(({ _id: name, collection, phases }) => ({ name, collection, phases: listed(phases) }))
  }

  /**
   * Registers missing lifecycles, and writes the value that is used instead into entries that a person has broken.
   * @returns those that were there, and of which another definition counts as the newest: until {@link becomesNewest}
   */
  async register(): Promise<readonly LifecycleModel[]> {
    const changed: LifecycleModel[] = []
    for (const model of this.models) {
      const [entry, definition] = [entryOf(model), digestOf(model)]
      const gone = entry.callbacks ? {} : { callbacks: true as const }
      const update = {
        $set: entry,
        $unset: gone,
        $setOnInsert: { lockTimeout: model.settings.lockTimeoutMs, definition },
      }
      // Before the entry says that it declares them: that makes one whose document is gone another than a new one.
      for (const [limit, slots] of model.declaredLimits ?? []) await declareLimit(this.db, limit, slots)
      const before = await this.collection.findOneAndUpdate({ _id: model.name }, update, {
        ...{ upsert: true, returnDocument: 'before', projection: { definition: 1 } },
      })
      if (before && before.definition !== definition) changed.push(model)
      await keepGraph(this.db, model.name, graphOf(model), entry)
    }
    if (await this.read()) return changed
    for (const { name, settings } of this.models) {
      const known = this.inForce.get(name)
      const inForceMs = known?.broken ? undefined : known?.dueMs
      await standInForLockTimeout(this.db, name, { inForceMs, settingMs: settings.lockTimeoutMs })
    }
    await this.read({ whateverItSays: true })
    return changed
  }

  async becomesNewest(model: LifecycleModel): Promise<void> {
    await this.collection.updateOne({ _id: model.name }, { $set: { definition: digestOf(model) } })
  }

  /** True if another definition of a lifecycle counts as the newest, as of the last reading. */
  isSuperseded(model: LifecycleModel): boolean {
    const { definition } = this.inForce.get(model.name) ?? {}
    return definition !== undefined && definition !== digestOf(model)
  }

  get problems(): string[] {
    return this.models.flatMap(({ name }) => {
      const broken = this.inForce.get(name)?.broken
      return broken ? [`${name} in ${LIFECYCLES_COLLECTION}: ${broken}`] : []
    })
  }

  /**
   * Adopts the result of a look, unless that was asked before what is known. Returns false when there is something to {@link register}: a lifecycle
   * that is no longer there, or an entry that has just been broken and doesn't state the value that was in force.
   */
  adopt(
    { lockTimeouts, sentAtMs }: Pick<LookResult, 'lockTimeouts' | 'sentAtMs'>,
    { whateverItSays = false } = {},
  ): boolean {
    if (sentAtMs < this.askedAtMs) return this.models.every((model) => lockTimeouts.has(model.name))
    this.askedAtMs = sentAtMs
    let complete = true
    for (const model of this.models) {
      const found = lockTimeouts.get(model.name)
      const before = this.inForce.get(model.name)
      const isAnother = found?.broken && before && !before.broken && found.dueMs !== before.dueMs
      if (!found || (isAnother && !whateverItSays)) {
        complete = false
        continue
      }
      const inForce = found.broken && before ? eitherOf(found, before) : found
      this.inForce.set(model.name, inForce)
      this.adoptPauses(model, found)
      if (found.broken !== before?.broken) this.reportBroken(model, inForce)
      if (before?.dueMs === inForce.dueMs && before.leaseMs === inForce.leaseMs) continue
      this.report(model, inForce, before !== undefined)
      // The clients were made for this replica's own setting.
      const { leaseMs } = inForce
      const shorter = leaseMs < model.settings.lockTimeoutMs ? leaseMs : undefined
      for (const db of [this.db, this.renewalDb]) limitCommands(db, model.name, shorter)
    }
    if (complete) {
      this.readAtMs = sentAtMs
      this.refreshed.resolve()
      this.refreshed = Promise.withResolvers()
    }
    return complete
  }

  /**
   * Keeps the readings recent enough to use: reads again when they get too old, over the renewals' connection.
   * @throws the driver's errors, TermsOutdated: then nothing may be claimed or renewed
   */
  async keepFresh(): Promise<void> {
    if (this.ageMs() < KNOWN_FOR_MS / 2) return
    for (let reads = 0; reads < MOST_READS; reads += 1) {
      this.reading ??= this.read().finally(() => {
        this.reading = undefined
      })
      // A look that comes through frees callers that wait on a dead connection.
      await Promise.race([this.reading, this.refreshed.promise])
      // The age counts from when the read was sent: this process may have stood still since.
      if (this.ageMs() < KNOWN_FOR_MS) return
    }
    throw new TermsOutdated(this.ageMs())
  }

  private ageMs(): number {
    return this.clock.monotonicMs() - this.readAtMs
  }

  /** Records in the database that a replica looks after these lifecycles, for `phaselock check`. */
  async stamp(lifecycles: readonly string[]): Promise<void> {
    if (lifecycles.length === 0) return
    await this.collection.updateMany({ _id: { $in: [...lifecycles] } }, [{ $set: { handledAt: '$$NOW' } }])
  }

  /** The lockTimeout in force; a lifecycle's own setting before anything was read. */
  lockTimeout(model: LifecycleModel): { dueMs: number; leaseMs: number; knownUntil?: Date } {
    const { lockTimeoutMs } = model.settings
    return this.inForce.get(model.name) ?? { dueMs: lockTimeoutMs, leaseMs: lockTimeoutMs }
  }

  paused({ name }: LifecycleModel): Paused {
    return this.pausedBy.get(name) ?? Paused.nothing
  }

  /** What looks at its census, as of the last reading. */
  watched({ name }: LifecycleModel): CensusReader | undefined {
    return this.inForce.get(name)?.watched
  }

  cancels({ name }: LifecycleModel): readonly CancelRequest[] {
    return this.inForce.get(name)?.cancels ?? []
  }

  /** Adopts pauses. A forward step of the server's clock that isn't confirmed ends no pause. */
  private adoptPauses({ name }: LifecycleModel, { pauses }: LockTimeoutInForce): void {
    const before = this.pausedBy.get(name) ?? Paused.nothing
    if (pauses.length === 0 && before === Paused.nothing) return
    const nowMs = (this.serverClock.now() ?? this.clock.now()).getTime() - (this.serverClock.hold()?.ms ?? 0)
    const inForce = pauses.filter((pause) => isInForce(pause, new Date(nowMs)))
    this.pausedBy.set(name, inForce.length > 0 ? new Paused(inForce) : Paused.nothing)
    const [texts, were] = [inForce, before.pauses].map((all) => new Set(all.map((pause) => pauseText(name, pause))))
    for (const text of texts!) if (!were!.has(text)) this.logger.warn(`${text}; running steps end, no other begins`)
    for (const text of were!) if (!texts!.has(text)) this.logger.info(text.replace(': paused', ': no longer paused'))
  }

  private async read(how: { whateverItSays?: boolean } = {}): Promise<boolean> {
    const sentAtMs = this.clock.monotonicMs()
    const names = this.models.map((model) => model.name)
    const lockTimeouts = await readLockTimeouts(this.renewalDb, names, { maxTimeMS: 5_000 })
    const [found] = lockTimeouts.values()
    if (found) this.serverClock.saw(found.now, sentAtMs)
    return this.adopt({ lockTimeouts, sentAtMs }, how)
  }

  private reportBroken({ name }: LifecycleModel, { broken, dueMs }: LockTimeoutInForce): void {
    const entry = `${name} in ${LIFECYCLES_COLLECTION}`
    const fix = `phaselock set-lock-timeout ${typed(name)} ${Math.ceil(dueMs / 1_000)}s`
    if (broken === undefined) this.logger.info(`${name}: its entry in ${LIFECYCLES_COLLECTION} is valid again`)
    else this.logger.error(`${entry}: ${broken}; this replica keeps using ${formatMs(dueMs)}; to fix it: ${fix}`)
  }

  private report({ name, settings }: LifecycleModel, { dueMs, leaseMs }: LockTimeoutInForce, isChange: boolean): void {
    const own = settings.lockTimeoutMs
    const [due, lease, ours] = [dueMs, leaseMs, own].map(formatMs)
    if (dueMs !== leaseMs) {
      this.logger.warn(
        `${name}: lockTimeout is being changed (${LIFECYCLES_COLLECTION}): leases last ${lease}, those of others are honoured for ${due}`,
      )
    } else if (dueMs !== own || isChange) {
      const change = `phaselock set-lock-timeout ${typed(name)} ${own % 1_000 === 0 ? `${own / 1_000}s` : `${own}ms`}`
      const unused = `; this replica's setting of ${ours} is not used (to change it: ${change})`
      const inForce = `${name}: lockTimeout ${due} is in force (${LIFECYCLES_COLLECTION})`
      this.logger.warn(`${inForce}${dueMs === own ? '' : unused}`)
    }
  }
}

const entryOf = (model: LifecycleModel) => ({
  collection: model.collection,
  phases: territoryOf(model).phases as string[],
  ...registeredFields(model),
})

const digests = new WeakMap<LifecycleModel, string>()

function digestOf(model: LifecycleModel): string {
  const known = digests.get(model)
  if (known !== undefined) return known
  const digest = createHash('sha256')
    .update(JSON.stringify(entryOf(model)))
    .digest('hex')
    .slice(0, 16)
  digests.set(model, digest)
  return digest
}

/** The digest of a lifecycle's definition, for people: 12 hex digits. */
export const graphOf = (model: LifecycleModel): string => digestOf(model).slice(0, 12)

/** The terms while it can't be known which of two is in force: others' leases are judged by the longer one, this replica's by the shorter. */
const eitherOf = (found: LockTimeoutInForce, before: LockTimeoutInForce): LockTimeoutInForce => ({
  ...found,
  dueMs: Math.max(found.dueMs, before.dueMs),
  leaseMs: Math.min(found.leaseMs, before.leaseMs),
})
