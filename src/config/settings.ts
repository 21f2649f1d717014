import { availableParallelism } from 'node:os'
import { z } from 'zod'
import { duration, fromText, matching, oneOf, processOptions, whole } from '../options/index.js'

/** What a person reads about a setting. Each has a variable, a flag, or both. */
export interface SettingInfo {
  readonly variable: string
  readonly flag: string
  /** What the flag's value is called in `--help`. */
  readonly value: string
  readonly meaning: string
  /** The unit or form of the value. */
  readonly unit: string
  /** Its default, as text for people. */
  readonly fallback: string
  /** Values with a meaning of their own. */
  readonly special: string
  /** Never printed as it is: may hold a password. */
  readonly secret?: true
}

const settingInfo = z.registry<SettingInfo>()

function about<T extends z.ZodType>(schema: T, info: SettingInfo): T {
  settingInfo.add(schema, info)
  return schema
}

const filled = (what: string) => matching(what, /\S/)

/** A number of processes; `auto`: one for each core that this process may use. */
const workers = z.preprocess(
  (given) => (given === 'auto' ? availableParallelism() : given),
  fromText(whole(1, 256, ', or auto')).default(1),
)

const collection = matching("a collection's name without $", /^(?!system\.)[^$\0]{1,200}$/)

/**
 * Every setting of a process: where its database is, who it is, what it runs, how it logs. What belongs to a lifecycle (lockTimeout,
 * concurrency, ...) is declared with the lifecycle. Values come as strings, from a flag or the environment.
 */
export const settingsSchema = z.strictObject({
  uri: about(filled('a connection string such as mongodb://host:27017/database').optional(), {
    variable: 'MONGODB_URI',
    flag: 'uri',
    value: 'uri',
    meaning: 'the MongoDB server, and in its path the database',
    unit: 'connection string',
    fallback:
      'a local database in the data directory, for development: none in a pod, with `NODE_ENV=production`, or for a command that only reads',
    special: '',
    secret: true,
  }),
  database: about(matching('a database\'s name without / \\ . " $ and spaces', /^[^/\\. "$\0]{1,63}$/).optional(), {
    variable: 'PHASELOCK_DATABASE',
    flag: 'database',
    value: 'name',
    meaning: "the database's name, also where the connection string names another",
    unit: 'name',
    fallback: "the one in the connection string's path, else `phaselock`",
    special: '',
  }),
  dataDir: about(filled('a folder').default('.phaselock'), {
    variable: 'PHASELOCK_DATA_DIR',
    flag: 'data-dir',
    value: 'folder',
    meaning: 'the folder of the local database; replicas of the same folder share it',
    unit: 'path, from the current folder',
    fallback: '`.phaselock`',
    special: 'not used with a connection string',
  }),
  connectTimeout: about(duration('100ms', '5m').default(10_000), {
    variable: 'PHASELOCK_CONNECT_TIMEOUT',
    flag: 'connect-timeout',
    value: 'duration',
    meaning: 'how long the server of a connection string may take to answer at start',
    unit: 'duration, 100ms to 5m',
    fallback: '`10s`',
    special: '',
  }),
  name: about(processOptions.name, {
    variable: 'POD_NAME',
    flag: 'name',
    value: 'name',
    meaning: "this replica's name in `lockedBy`, logs and metrics; made unique per start",
    unit: 'name',
    fallback: "the host's name and the process id",
    special: 'in Kubernetes: `metadata.name` by the Downward API',
  }),
  lifecycles: about(filled('a module: a file or a package').optional(), {
    variable: 'PHASELOCK_LIFECYCLES',
    flag: 'lifecycles',
    value: 'module',
    meaning: 'the module whose default export is what is run: an array of lifecycles, or a function that returns one',
    unit: 'file, from the current folder, or package',
    fallback: 'the built-in tasks (`phaselock/tasks`)',
    special: '',
  }),
  doorbell: about(processOptions.doorbell, {
    variable: 'PHASELOCK_DOORBELL',
    flag: 'doorbell',
    value: 'how',
    meaning: 'how replicas hear of new documents between their ticks, and whether commands ring',
    unit: '`auto`, `capped`, `changeStream` or `off`',
    fallback: '`auto`: a change stream where the deployment has them, else a capped collection',
    special: '`off`: new documents wait for the tick',
  }),
  grace: about(processOptions.grace, {
    variable: 'PHASELOCK_GRACE',
    flag: 'grace',
    value: 'duration',
    meaning: 'how long running steps may go on after SIGTERM, before their signals abort',
    unit: 'duration, 0s to 1h',
    fallback: '`10s`',
    special: "`0s`: abort at once. Keep it below the pod's terminationGracePeriodSeconds",
  }),
  workers: about(workers, {
    variable: 'PHASELOCK_WORKERS',
    flag: 'workers',
    value: 'number',
    meaning: 'processes that work, each a replica of its own, under one that watches over them',
    unit: 'whole number, 1 to 256, or `auto`',
    fallback: '`1`: this process works itself',
    special: '`auto`: as many as there are cores',
  }),
  threads: about(fromText(processOptions.threads), {
    variable: 'PHASELOCK_THREADS',
    flag: 'threads',
    value: 'number',
    meaning: 'worker threads at most in each process, for handlers declared as `thread(...)`',
    unit: 'whole number, 1 to 256',
    fallback: 'the cores but one, shared among the workers; at least 1',
    special: 'none start before a step needs one',
  }),
  threadMemory: about(fromText(processOptions.threadMemoryMb), {
    variable: 'PHASELOCK_THREAD_MEMORY',
    flag: 'thread-memory',
    value: 'MB',
    meaning: 'what one worker thread may keep on its heap; a step that needs more fails',
    unit: 'MB, 16 to 65536',
    fallback: 'as much as Node gives a thread',
    special: '',
  }),
  blockedAfter: about(processOptions.blockedAfter, {
    variable: 'PHASELOCK_BLOCKED_AFTER',
    flag: 'blocked-after',
    value: 'duration',
    meaning: 'the event loop counts as blocked, and is reported, when it stands still for so long',
    unit: 'duration, 0ms to 1m',
    fallback: '`200ms`',
    special: '`0ms`: nobody looks',
  }),
  clockHold: about(processOptions.clockHold, {
    variable: 'PHASELOCK_CLOCK_HOLD',
    flag: 'clock-hold',
    value: 'duration',
    meaning:
      "how long a forward step of the server's clock has to last before deadlines, removals and the ends of leases go by it",
    unit: 'duration, 0s to 1h',
    fallback: '`60s`',
    special: '`0s`: at once',
  }),
  earlyRecovery: about(oneOf(['on', 'off']).default('off'), {
    variable: 'PHASELOCK_EARLY_RECOVERY',
    flag: 'early-recovery',
    value: 'on',
    meaning: "whether leases end as soon as Kubernetes reports the end of their process's container",
    unit: '`on` or `off`',
    fallback: '`off`: they end by their lockTimeout',
    special: '`on` needs POD_NAME, POD_NAMESPACE and the right to read pods (docs/kubernetes.md)',
  }),
  locks: about(oneOf(['auto', 'mongodb', 'postgres', 'redis', 'memory']).optional(), {
    variable: 'PHASELOCK_LOCKS',
    flag: 'locks',
    value: 'provider',
    meaning: 'where named locks are kept',
    unit: '`auto`, `mongodb`, `postgres`, `redis` or `memory`',
    fallback: "`auto`: what the locks' URL is of, else by the mode",
    special: '`memory`: nobody but this process sees them',
  }),
  locksUrl: about(filled('a connection string such as redis://host:6379 or postgres://host/database').optional(), {
    variable: 'PHASELOCK_LOCKS_URL',
    flag: 'locks-url',
    value: 'url',
    meaning: 'the server of named locks: mongodb://, postgres:// or redis://',
    unit: 'connection string',
    fallback: "the process's own MongoDB",
    special: '',
    secret: true,
  }),
  mode: about(oneOf(['auto', 'single', 'distributed']).optional(), {
    variable: 'PHASELOCK_MODE',
    flag: 'mode',
    value: 'mode',
    meaning: 'whether other processes want the same named locks',
    unit: '`auto`, `single` or `distributed`',
    fallback: '`auto`: distributed with a MongoDB, a POD_NAME or in Kubernetes, else single',
    special: '`single`: locks in memory; `distributed`: refuses to start without a server for them',
  }),
  schedulesCollection: about(collection.default('schedules'), {
    variable: 'PHASELOCK_SCHEDULES_COLLECTION',
    flag: 'schedules-collection',
    value: 'name',
    meaning: 'where the commands on schedules find them',
    unit: 'name',
    fallback: '`schedules`',
    special: '`start` goes by the code that makes them (`collections` of Schedules)',
  }),
  runsCollection: about(collection.default('runs'), {
    variable: 'PHASELOCK_RUNS_COLLECTION',
    flag: 'runs-collection',
    value: 'name',
    meaning: "where the commands on schedules find the schedules' runs",
    unit: 'name',
    fallback: '`runs`',
    special: '`start` goes by the code that makes them (`collections` of Schedules)',
  }),
  http: about(fromText(whole(0, 65_535)).optional(), {
    variable: 'PHASELOCK_HTTP',
    flag: 'http',
    value: 'port',
    meaning: 'the port of /livez, /readyz and /metrics',
    unit: 'port, 0 to 65535',
    fallback: 'off: no web server is loaded',
    special: '`0`: any free port, printed at start',
  }),
  httpHost: about(matching('an address or host name to listen on', /^[A-Za-z0-9.:_-]+$/).default('0.0.0.0'), {
    variable: 'PHASELOCK_HTTP_HOST',
    flag: 'http-host',
    value: 'address',
    meaning: 'the address that the port of --http listens on',
    unit: 'address',
    fallback: '`0.0.0.0`: all of this machine',
    special: '`127.0.0.1`: this machine only',
  }),
  log: about(oneOf(['json', 'pretty']).optional(), {
    variable: 'PHASELOCK_LOG',
    flag: 'log',
    value: 'format',
    meaning: 'the form of log lines (standard error)',
    unit: '`json` or `pretty`',
    fallback: '`pretty` on a terminal, else `json`',
    special: '',
  }),
  logLevel: about(oneOf(['debug', 'info', 'warn', 'error', 'silent']).optional(), {
    variable: 'PHASELOCK_LOG_LEVEL',
    flag: 'log-level',
    value: 'level',
    meaning: 'the least level that is logged',
    unit: '`debug`, `info`, `warn`, `error` or `silent`',
    fallback: '`info` for `start`, `warn` for the other commands',
    special: '`debug`: errors are printed with their stack; `silent`: no log',
  }),
})

/** The settings of a process, checked and with their defaults: durations in milliseconds. */
export type Settings = z.output<typeof settingsSchema>
export type SettingKey = keyof Settings

/** Each setting with what a person reads about it, in the order of the documentation. */
export const SETTINGS: readonly (SettingInfo & { readonly key: SettingKey })[] = Object.entries(
  settingsSchema.shape,
).map(([key, schema]) => ({ key: key as SettingKey, ...settingInfo.get(schema)! }))

/** What a person reads about one setting. */
export function aboutSetting(key: SettingKey): SettingInfo {
  return SETTINGS.find((setting) => setting.key === key)!
}
