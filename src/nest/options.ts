import type { ModuleMetadata, Provider } from '@nestjs/common'
import { z } from 'zod'
import { nearest, requireNode } from '../config/index.js'
import {
  type Alongside,
  DOORBELL_MODES,
  type DoorbellMode,
  type Logger,
  type ReplicaObserver,
  type RunnableLifecycle,
} from '../phases/index.js'
import { type Duration, durationMs } from '../time/index.js'
import { InvalidModuleOptions } from './errors.js'
import { HOOKS, type Hooks } from './hooks.js'
import type { LocksOptions } from './locks/index.js'

/**
 * The app's own handles by their shape: an app may bring another copy of the driver (Mongoose does), whose classes are other
 * types.
 */
export interface AppDb {
  readonly databaseName: string
  collection(name: string): object
  command(command: object): Promise<unknown>
}

export interface AppClient {
  db(name?: string): AppDb
  connect(): Promise<unknown>
}

/** An open connection of the app's own, as Mongoose and `connectDatabase()` have it. One that is still opening is waited for. */
export interface AppConnection {
  readonly db?: AppDb | undefined
  close(): Promise<unknown>
  asPromise?(): Promise<unknown>
}

/** What `PhaselockModule.forFeature` takes besides the lifecycles. */
export interface FeatureOptions {
  /** The database of these lifecycles' documents, on the same server. Default: that of the module. */
  readonly database?: string | undefined
}

/** What `PhaselockModule.forRoot` takes. At most one of `uri`, `client`, `db` and `connection`; without any, `connectDatabase()` decides. */
export interface PhaselockModuleOptions extends Hooks {
  /** A connection string; empty counts as not given. Default: MONGODB_URI, else a local database for development. */
  readonly uri?: string | undefined
  /** Your own connected client, with `database`. You close it, after the app. */
  readonly client?: AppClient
  /** The database's name. Required with `client`; else default: the one in the connection string, else 'phaselock'. */
  readonly database?: string | undefined
  /** Your own database handle. You close its client, after the app. */
  readonly db?: AppDb
  /** A Mongoose connection, or what `connectDatabase()` gave. You close it, after the app. */
  readonly connection?: AppConnection
  /** Lifecycles that have their handlers already: `lifecycle.handle({...})`. */
  readonly lifecycles?: readonly RunnableLifecycle[] | undefined
  /** Who this replica is in `lockedBy`. Default: POD_NAME, else the host's name and the process id. */
  readonly name?: string | undefined
  /** How long running steps may go on when the app shuts down. Default 10s. */
  readonly grace?: Duration | undefined
  /**
   * Worker threads at most, for handlers declared as `thread(...)`; they start when a step needs one. Default: the cores that
   * this process may use, but one; at least 1. See docs/threads.md.
   */
  readonly threads?: number | undefined
  /** What one thread may keep on its heap, in MB. Default: as much as Node gives a thread. */
  readonly threadMemoryMb?: number | undefined
  /** The event loop counts as blocked, and is reported, when it stands still for so long. Default 200ms; 0ms: nobody looks. */
  readonly blockedAfter?: Duration | undefined
  /**
   * How long a forward step of the server's clock has to last before deadlines, removals and the ends of leases go by it. Default
   * 60s; 0s: at once.
   */
  readonly clockHold?: Duration | undefined
  /** Whether this process works on documents, once a second. `false`: it only inserts and owns them. Default true. */
  readonly tick?: boolean | undefined
  /**
   * Whether this process listens for new documents between its ticks and rings for what it inserts, and how: by a change stream
   * where the deployment has them, else by a capped collection. Default 'auto'. See docs/doorbell.md.
   */
  readonly doorbell?: DoorbellMode | undefined
  /**
   * Whether a start creates missing indexes, or only looks and fails with the commands to paste, for a database user without
   * DDL rights. Default 'create'.
   */
  readonly indexes?: 'create' | 'check' | undefined
  /** Named locks: `@SchedulerLock` and `LockExecutor`. Default: in this module's database. */
  readonly locks?: LocksOptions | undefined
  /** What runs beside each lifecycle while this process works on documents, as `earlyRecovery()`. Default: nothing. */
  readonly alongside?: readonly Alongside[] | undefined
  /** Default: Nest's Logger with the context 'Phaselock'. */
  readonly logger?: Logger | undefined
  /** Told of everything that happens, for metrics. */
  readonly observer?: ReplicaObserver | undefined
}

/** What `PhaselockModule.forRootAsync` takes: a factory of the options, with what it needs. */
export interface PhaselockModuleAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  readonly inject?: NonNullable<Extract<Provider, { useFactory: unknown }>['inject']>
  // biome-ignore lint/suspicious/noExplicitAny: what is injected is known to its writer only
  readonly useFactory: (...injected: any[]) => PhaselockModuleOptions | Promise<PhaselockModuleOptions>
}

/** The options, checked: units resolved, defaults filled in. */
export interface ModuleSettings
  extends Omit<PhaselockModuleOptions, 'grace' | 'tick' | 'lifecycles' | 'blockedAfter' | 'clockHold'> {
  readonly lifecycles: readonly RunnableLifecycle[]
  readonly graceMs: number | undefined
  readonly blockedAfterMs: number | undefined
  readonly clockHoldMs: number | undefined
  readonly tick: boolean
}

/** An object with these methods; never `instanceof`: an app may bring a driver of its own (Mongoose does). */
const having = (methods: readonly string[], what: string) =>
  z.custom<object>(
    (value) =>
      typeof value === 'object' && value !== null && methods.every((m) => typeof Reflect.get(value, m) === 'function'),
    { error: (issue) => `expected ${what}, got ${shown(issue.input)}` },
  )

const text = z.string({ error: (issue) => `expected a text, got ${shown(issue.input)}` })
const hook = z.custom((value) => typeof value === 'function', {
  error: (issue) => `expected a function, got ${shown(issue.input)}`,
})

const duration = z
  .string({ error: (issue) => `expected a duration such as '10s', got ${shown(issue.input)}` })
  .superRefine((value, context) => {
    try {
      durationMs(value)
    } catch (error) {
      context.addIssue((error as Error).message)
    }
  })

const whole = (least: number, most: number) => {
  const expected = `expected a whole number from ${least} to ${most}`
  return z
    .number({ error: (issue) => `${expected}, got ${shown(issue.input)}` })
    .int(expected)
    .min(least, expected)
    .max(most, expected)
}

const connection = having(['close'], 'a Mongoose connection or one from connectDatabase()').refine(
  // One of Mongoose has no db before it is open.
  (value) => 'db' in value || 'asPromise' in value,
  { error: 'expected a Mongoose connection or one from connectDatabase(), it has no db' },
)

const schema = z.strictObject({
  uri: text.optional(),
  client: having(['db', 'connect'], 'a MongoClient').optional(),
  database: text.min(1, 'expected a name, got an empty text').optional(),
  db: having(['collection', 'command'], 'a Db of the mongodb driver').optional(),
  connection: connection.optional(),
  lifecycles: z.array(having(['attach'], 'a lifecycle with handlers: lifecycle.handle({...})')).optional(),
  name: text.min(1, 'expected a name, got an empty text').optional(),
  grace: duration.optional(),
  threads: whole(1, 256).optional(),
  threadMemoryMb: whole(16, 65_536).optional(),
  blockedAfter: duration.optional(),
  clockHold: duration.optional(),
  tick: z.boolean({ error: (issue) => `expected true or false, got ${shown(issue.input)}` }).optional(),
  doorbell: z
    .enum(DOORBELL_MODES, {
      error: (issue) => `expected one of ${DOORBELL_MODES.join(', ')}, got ${shown(issue.input)}`,
    })
    .optional(),
  indexes: z
    .enum(['create', 'check'], { error: (issue) => `expected 'create' or 'check', got ${shown(issue.input)}` })
    .optional(),
  locks: having([], 'an object with the options of named locks').optional(),
  alongside: z.array(hook).optional(),
  logger: having(['debug', 'info', 'warn', 'error'], 'an object with debug, info, warn and error').optional(),
  observer: having([], 'an object with an observer’s methods').optional(),
  ...Object.fromEntries(HOOKS.map((name) => [name, hook.optional()])),
})

const featureSchema = z.strictObject({ database: text.min(1, 'expected a name, got an empty text').optional() })

const CONNECTIONS = ['uri', 'client', 'db', 'connection'] as const

/** @throws InvalidModuleOptions listing every problem: unknown options, wrong types, two databases at once; UnsupportedNode */
export function parseOptions(given: PhaselockModuleOptions | undefined): ModuleSettings {
  requireNode()
  const parsed = schema.safeParse(given ?? {})
  const problems = parsed.success ? [] : parsed.error.issues.map((issue) => describe(issue, schema))
  if (given && typeof given === 'object') problems.push(...connectionProblems(given))
  if (problems.length > 0) throw new InvalidModuleOptions(problems)
  const { grace, tick, lifecycles, blockedAfter, clockHold, ...rest } = given ?? {}
  return {
    ...rest,
    lifecycles: lifecycles ?? [],
    tick: tick ?? true,
    graceMs: grace === undefined ? undefined : durationMs(grace),
    blockedAfterMs: blockedAfter === undefined ? undefined : durationMs(blockedAfter),
    clockHoldMs: clockHold === undefined ? undefined : durationMs(clockHold),
  }
}

/** @throws InvalidModuleOptions */
export function parseFeatureOptions(given: FeatureOptions): FeatureOptions {
  const parsed = featureSchema.safeParse(given)
  if (parsed.success) return given
  throw new InvalidModuleOptions(parsed.error.issues.map((issue) => `forFeature: ${describe(issue, featureSchema)}`))
}

function connectionProblems(given: PhaselockModuleOptions): string[] {
  const used = CONNECTIONS.filter((name) => given[name] !== undefined && given[name] !== '')
  // An undefined handle would silently mean another database than the one that was meant.
  const problems = (['client', 'db', 'connection'] as const)
    .filter((name) => name in given && given[name] === undefined)
    .map((name) => `${name}: expected it to be there, got undefined; is the connection open when the options are made?`)
  if (used.length > 1) problems.push(`expected one of ${CONNECTIONS.join(', ')}, got ${used.join(' and ')}; keep one`)
  if (given.client !== undefined && given.database === undefined)
    problems.push("client: expected the database's name too; add `database: '...'`")
  if (given.database !== undefined && (given.db !== undefined || given.connection !== undefined))
    problems.push(`database: ${given.db ? 'db' : 'connection'} names its database already; remove it`)
  return problems
}

function describe(issue: z.core.$ZodIssue, { shape }: z.ZodObject): string {
  if (issue.code === 'unrecognized_keys') {
    const known = Object.keys(shape).join(', ')
    const unknown = issue.keys.map((key) => {
      const near = nearest(key, Object.keys(shape))
      return near === undefined ? `'${key}'` : `'${key}' (did you mean '${near}'?)`
    })
    return `unknown option ${unknown.join(', ')}; known: ${known}`
  }
  const path = issue.path.join('.')
  return path === '' ? `expected an object, got something else: ${issue.message}` : `${path}: ${issue.message}`
}

function shown(value: unknown): string {
  if (value === null || typeof value !== 'object') return typeof value === 'string' ? `'${value}'` : String(value)
  return value.constructor?.name === 'Object'
    ? `an object with ${Object.keys(value).join(', ') || 'nothing'}`
    : `a ${value.constructor?.name}`
}
