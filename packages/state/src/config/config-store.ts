import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import type { Db } from 'mongodb'
import type { AlongsideContext, Logger } from 'phaselock'
import { UsageError } from 'phaselock/operations'
import { Doorbell, type Listener } from 'phaselock/tasks'
import { aFlag, anEnvironment, aText, checked, environmentIn, having, type Reads, required } from '../options.js'
import { type ConfigDefinition, InvalidConfig } from './definition.js'
import { judged } from './schema.js'
import {
  CONFIG_RING,
  type ConfigChange,
  type ConfigDocument,
  type ConfigPlace,
  type ConfigVersion,
  noteRefusal,
  prepareConfig,
  REFUSAL_LASTS_MS,
  rollBackConfig,
  storeConfig,
  storedConfig,
  storedVersions,
  unknownConfig,
  versionOf,
} from './versions.js'

/** The pause between two looks at the versions. */
const LOOK_EVERY_MS = 1_000
/** A refusal is noted again three times while its note lasts. */
const LOOKS_PER_NOTE = REFUSAL_LASTS_MS / 3 / LOOK_EVERY_MS

/** The options of `new ConfigStore(...)`. */
export interface ConfigStoreOptions {
  readonly db: Db
  /** The configurations that this process reads. Their names must differ. */
  // biome-ignore lint/suspicious/noExplicitAny: definitions of any type
  readonly configs: readonly ConfigDefinition<any>[]
  /** Separates environments in one database. Default `PHASELOCK_ENVIRONMENT`, else `default`. */
  readonly environment?: string | undefined
  /** The name of this process, for people. Default: the host's name and the process id. */
  readonly name?: string | undefined
  /** False: neither rings nor listens, and sees changes within a second. Default true. */
  readonly doorbell?: boolean | undefined
  /** The same database on a client made for listening (`doorbellClient`). Default: `db`; listening takes a connection of its pool. */
  readonly doorbellDb?: Db | undefined
  /** Default: nowhere. */
  readonly logger?: Pick<Logger, 'info' | 'warn'> | undefined
}

const aListOfConfigs: Reads<readonly ConfigDefinition[]> = (value, option) => {
  if (!Array.isArray(value) || !value.every((one) => typeof one?.name === 'string'))
    throw new Error(`${option}: expected a list of what defineConfig returns, got ${typeof value}`)
  const names = value.map(({ name }) => name)
  const twice = names.find((one, i) => names.indexOf(one) !== i)
  if (twice === undefined) return value
  throw new Error(`${option}: expected names that differ, got ${twice} twice`)
}

const toOpen = {
  db: required(having<Db>(['collection', 'command'], 'a Db of the mongodb driver')),
  configs: aListOfConfigs,
  environment: anEnvironment,
  name: aText,
  doorbell: aFlag,
  doorbellDb: having<Db>(['collection', 'command'], 'a Db of the mongodb driver'),
  logger: having<Logger>(['info', 'warn'], 'a logger'),
}

/** The value of one configuration in this process. */
interface InForce {
  readonly definition: ConfigDefinition
  /** The version whose value is in force, and the newest one that was judged. */
  version: number
  judged: number
  value: unknown
  /** Why a newer version isn't in force. */
  refusal: { readonly version: number; readonly issues: readonly string[]; looks: number } | undefined
}

/**
 * The configuration of an app, the same on all its replicas: values in MongoDB that a schema has checked, each change a version with its author
 * and reason. No file is read. A change is in force on all processes with a ring, and without it within a second.
 *
 * A stored value that the schema of this version refuses isn't taken over: the newest one that it accepts is in force, and
 * {@link ConfigStore.problems}, `/readyz`, `phaselock config` and `phaselock check` say so.
 *
 * @example
 * ```ts
 * const config = new ConfigStore({ db, configs: [mail] })
 * await config.start()
 * const { host, port } = config.get(mail)
 * await config.set(mail, { host: 'smtp.example.org' }, { by: 'ana', reason: 'the new relay' })
 * ```
 */
export class ConfigStore {
  private readonly place: ConfigPlace
  private readonly self: string
  private readonly logger: Pick<Logger, 'info' | 'warn'> | undefined
  private readonly inForce: ReadonlyMap<string, InForce>
  private readonly listeners = new Set<(name: string, value: unknown) => unknown>()
  private looking: Promise<void> | undefined
  private timer: NodeJS.Timeout | undefined
  private isStarted = false
  /** True from the end of the first `start()` on: values stay readable after `stop()`. */
  private hasStarted = false
  private readonly doorbell: Doorbell | undefined
  private listener: Listener | undefined
  private outage: unknown

  /** @throws InvalidOptions if two configurations share a name, or an option is unknown */
  constructor(options: ConfigStoreOptions) {
    const read = checked('new ConfigStore', toOpen, options)
    const { db, configs, name, logger } = options
    const { environment = environmentIn(process.env) } = read
    this.place = { db, environment }
    this.self = name ?? `${hostname()}/${process.pid}`
    this.logger = logger
    const { doorbellDb: listeningDb, doorbell = true } = options
    const self = `${this.self}/${randomUUID()}`
    this.doorbell = doorbell ? new Doorbell({ db, listeningDb, mode: 'capped', create: true, self }) : undefined
    this.inForce = new Map(
      configs.map((definition) => [
        definition.name,
        { definition, version: 0, judged: 0, value: definition.initial, refusal: undefined },
      ]),
    )
  }

  /**
   * Reads the stored values, and follows their changes until `stop()`. @throws InvalidConfig if a schema refuses the initial value of its
   * definition; what the driver throws if the database doesn't answer
   */
  async start(): Promise<void> {
    for (const one of this.inForce.values()) {
      const { schema, initial, name } = one.definition
      const result = await judged(schema, initial)
      if (result.issues)
        throw new InvalidConfig(
          name,
          result.issues.map((issue) => `initial: ${issue}`),
        )
      if (one.judged === 0) one.value = result.value
    }
    await prepareConfig(this.place.db)
    await this.look()
    this.isStarted = true
    this.hasStarted = true
    this.listener = this.doorbell?.listen(CONFIG_RING.lifecycles, async ({ phases }) => {
      if (!phases || phases.includes('config')) await this.look().catch(() => undefined)
    })
    this.follow()
  }

  /** Ends the looks; the values stay readable. */
  async stop(): Promise<void> {
    this.isStarted = false
    clearTimeout(this.timer)
    await Promise.all([this.listener?.stop(), this.doorbell?.flush(), this.looking?.catch(() => undefined)])
    this.listener = undefined
  }

  /** The value in force that the schema has returned: the same object until it changes. @throws UsageError before `start()` has ended */
  get<T>(config: ConfigDefinition<T>): T {
    return this.known(config).value as T
  }

  /** The version of the value in force; 0: the initial one. */
  versionOf(config: Pick<ConfigDefinition, 'name'>): number {
    return this.known(config).version
  }

  /**
   * Stores a value as the next version. It is in force here when this resolves.
   * @throws InvalidConfig if the schema refuses it; Refused if another version than `expectVersion` is stored
   */
  async set<T>(config: ConfigDefinition<T>, value: unknown, change: ConfigChange): Promise<ConfigVersion> {
    const one = this.known(config)
    const result = await judged(one.definition.schema, value)
    if (result.issues) throw new InvalidConfig(config.name, result.issues)
    return await this.changed(await storeConfig(this.place, config.name, value, change))
  }

  /** The value of an earlier version as the next one; default: of the version before. @throws NotFound, InvalidConfig, Refused */
  async rollBack(
    config: Pick<ConfigDefinition, 'name'>,
    change: ConfigChange & { readonly to?: number },
  ): Promise<ConfigVersion> {
    const { schema } = this.known(config).definition
    const check = async (value: unknown) => {
      const { issues } = await judged(schema, value)
      if (issues) throw new InvalidConfig(config.name, issues)
    }
    return await this.changed(await rollBackConfig(this.place, config.name, change, check))
  }

  /** The versions that are kept, newest first, as they were stored: 50 at most. */
  async history(config: Pick<ConfigDefinition, 'name'>): Promise<ConfigVersion[]> {
    this.known(config)
    const stored = await storedConfig(this.place, config.name)
    if (!stored) return []
    return [versionOf(stored), ...stored.history.map(versionOf)]
  }

  /** Calls the listener with each new value of the configuration. @returns a function that ends that */
  onChange<T>(config: ConfigDefinition<T>, listener: (value: T) => void): () => void {
    const { name } = this.known(config).definition
    const one = (changed: string, value: unknown): unknown => changed === name && listener(value as T)
    this.listeners.add(one)
    return () => this.listeners.delete(one)
  }

  /** The stored values that aren't in force here and why, one line each; empty: all is well. */
  problems(): string[] {
    const refused = [...this.inForce.values()].flatMap(({ definition: { name }, version, refusal }) =>
      refusal
        ? [
            `config ${name}: version ${refusal.version} is refused by the schema here (${refusal.issues[0]}); version ${version} stays in force`,
          ]
        : [],
    )
    return this.outage ? [...refused, `config: the database does not answer; the values may be outdated`] : refused
  }

  /** Background work of a lifecycle, which reports {@link ConfigStore.problems} to `/readyz` of its replica. */
  readonly alongside = async ({ signal, report }: Pick<AlongsideContext, 'signal' | 'report'>): Promise<void> => {
    report(() => this.problems())
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve()
      else signal.addEventListener('abort', () => resolve(), { once: true })
    })
  }

  private known(config: Pick<ConfigDefinition, 'name'>): InForce {
    const one = this.inForce.get(config.name)
    if (!one) throw unknownConfig(this.place, config.name)
    if (!this.hasStarted)
      throw new UsageError(`ConfigStore: expected start() to have ended before ${config.name} is read`)
    return one
  }

  private follow(): void {
    clearTimeout(this.timer)
    if (!this.isStarted) return
    this.timer = setTimeout(() => {
      void this.look()
        .then(
          () => {
            this.outage = undefined
          },
          (error: unknown) => {
            if (!this.outage)
              this.logger?.warn('the configuration can not be read; the last values stay in force', {
                error: String(error),
              })
            this.outage = error
          },
        )
        .finally(() => this.follow())
    }, LOOK_EVERY_MS)
    this.timer.unref()
  }

  /** One look at a time; a caller during one waits for another that begins after it. */
  private async look(): Promise<void> {
    while (this.looking) await this.looking.catch(() => undefined)
    this.looking = this.lookNow().finally(() => {
      this.looking = undefined
    })
    await this.looking
  }

  private async lookNow(): Promise<void> {
    const versions = await storedVersions(this.place)
    for (const one of this.inForce.values()) {
      const version = versions.get(one.definition.name) ?? 0
      if (version !== one.judged) await this.take(one)
      else if (one.refusal) await this.note(one)
    }
  }

  /** Takes over what is stored: the newest version that the schema accepts. */
  private async take(one: InForce): Promise<void> {
    const { name, schema, initial } = one.definition
    const stored = await storedConfig(this.place, name)
    const newest = stored ? await judged(schema, stored.value) : await judged(schema, initial)
    one.judged = stored?.version ?? 0
    if (!newest.issues) {
      one.refusal = undefined
      this.putInForce(one, one.judged, newest.value)
      return
    }
    one.refusal = { version: one.judged, issues: newest.issues, looks: 0 }
    this.logger?.warn(`config ${name}: version ${one.judged} is refused by the schema here`, { issues: newest.issues })
    // All processes with this schema come to the same version, however many there were between two of their looks.
    if (stored) await this.takeEarlier(one, stored)
    await this.note(one)
  }

  private async takeEarlier(one: InForce, { history }: ConfigDocument): Promise<void> {
    for (const { version, value } of history.filter((earlier) => earlier.version > one.version)) {
      const result = await judged(one.definition.schema, value)
      if (!result.issues) return this.putInForce(one, version, result.value)
    }
  }

  private putInForce(one: InForce, version: number, value: unknown): void {
    const { name } = one.definition
    if (one.version === version && version > 0) return
    one.version = version
    one.value = value
    if (version > 0) this.logger?.info(`config ${name}: version ${version} is in force`)
    for (const listener of this.listeners)
      void (async () => await listener(name, value))().catch((error: unknown) => {
        this.logger?.warn(`config ${name}: a listener has thrown`, { error: String(error) })
      })
  }

  private async note(one: InForce): Promise<void> {
    const { refusal } = one
    if (!refusal || refusal.looks++ % LOOKS_PER_NOTE > 0) return
    const { version, issues } = refusal
    await noteRefusal(this.place, one.definition.name, { by: this.self, version, issues })
  }

  private async changed(version: ConfigVersion): Promise<ConfigVersion> {
    this.doorbell?.ring(CONFIG_RING)
    await this.look()
    return version
  }
}
