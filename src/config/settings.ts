import { availableParallelism } from 'node:os'
import { COLLECTION_NAME, processOptions, t } from '../options/index.js'

/** The description of a setting for users. */
interface SettingText {
  /** Its variable. Default: `PHASELOCK_` and its key, such as PHASELOCK_DATA_DIR. */
  readonly variable?: string
  /** The name of the flag's value in `--help`. */
  readonly value: string
  readonly meaning: string
  /** The unit or form of the value. */
  readonly unit: string
  /** The default in words. */
  readonly fallback: string
  /** Values with a special meaning. */
  readonly special?: string
  /** The options of `PhaselockModule.forRoot` that win over it in a Nest app. Absent: only the command line uses it. */
  readonly options?: readonly string[]
}

/** Variables with the prefix of settings that aren't settings: those of the project's own tests, and of the embedded engine's process. */
export const NO_SETTINGS = /^PHASELOCK_(TEST_.*|BLAST_RUNS|BLAST_SEED|EMBEDDED_MODULE)$/

const texts = new Map<t.Type, SettingText>()

function about<T>(type: t.Type<T>, text: SettingText): t.Type<T> {
  texts.set(type, text)
  return type
}

const filled = (what: string) => t.matching(what, /\S/)

/** A number of processes; `auto`: one for each core that this process may use. */
const workers = t.prepared(
  (given) => (given === 'auto' ? availableParallelism() : given),
  t.fromText(t.whole(1, 256, ', or auto')),
)

const collection = t.matching("a collection's name without $", COLLECTION_NAME)

/**
 * Every setting of a process: its database, its identity, its work, its log. The settings of a lifecycle (lockTimeout,
 * concurrency, ...) are declared with the lifecycle. Values come as strings, from a flag or the environment.
 */
export const settingsSchema = t.object({
  uri: about(t.optional(filled('a connection string such as mongodb://host:27017/database')), {
    variable: 'MONGODB_URI',
    value: 'uri',
    meaning: 'the MongoDB server, with the database in its path',
    unit: 'connection string',
    fallback:
      'a local database in the data directory, for development; not in a pod, with `NODE_ENV=production`, or for a command that only reads',
    options: ['uri'],
  }),
  database: about(t.optional(t.matching('a database\'s name without / \\ . " $ and spaces', /^[^/\\. "$\0]{1,63}$/)), {
    value: 'name',
    meaning: 'the name of the database, even if the connection string names another',
    unit: 'name',
    fallback: "the one in the connection string's path, or `phaselock`",
    options: ['database', 'db', 'connection'],
  }),
  dataDir: about(t.withDefault(filled('a folder'), '.phaselock'), {
    value: 'folder',
    meaning: 'the folder of the local database; replicas with the same folder share it',
    unit: 'path, from the current folder',
    fallback: '`.phaselock`',
    special: 'not used with a connection string',
    options: ['db', 'client', 'connection'],
  }),
  connectTimeout: about(t.withDefault(t.duration('100ms', '5m'), '10s'), {
    value: 'duration',
    meaning: 'how long to wait at start for the server of a connection string to answer',
    unit: 'duration, 100ms to 5m',
    fallback: '`10s`',
    options: ['db', 'client', 'connection'],
  }),
  name: about(processOptions.name, {
    variable: 'POD_NAME',
    value: 'name',
    meaning: "this replica's name in `lockedBy`, logs and metrics; made unique per start",
    unit: 'name',
    fallback: 'the host name and the process id',
    special: 'in Kubernetes: `metadata.name` from the Downward API',
    options: ['name'],
  }),
  lifecycles: about(t.optional(filled('a module: a file or a package')), {
    value: 'module',
    meaning:
      'the module whose default export `start` runs: an array of lifecycles, or a function that returns one; to other commands any module that exports lifecycles, or a Nest module',
    unit: 'file, from the current folder, or package',
    fallback: '`start`: none, without one it refuses; other commands: what replicas have registered in the database',
  }),
  doorbell: about(processOptions.doorbell, {
    value: 'how',
    meaning: 'how replicas learn of new documents between ticks, and whether commands notify them',
    unit: '`auto`, `capped`, `changeStream` or `off`',
    fallback: '`auto`: a capped collection, on every deployment',
    special: '`off`: new documents wait for the next tick',
    options: ['doorbell'],
  }),
  grace: about(processOptions.grace, {
    value: 'duration',
    meaning: 'how long running steps may continue after SIGTERM before their signals abort',
    unit: 'duration, 0s to 1h',
    fallback: '`10s`',
    special: "`0s`: abort immediately. Keep it below the pod's terminationGracePeriodSeconds",
    options: ['grace'],
  }),
  workers: about(t.withDefault(workers, 1), {
    value: 'number',
    meaning: 'worker processes, each a replica of its own, under one that supervises them',
    unit: 'whole number, 1 to 256, or `auto`',
    fallback: '`1`: this process does the work itself',
    special: '`auto`: one per core',
  }),
  concurrency: about(t.optional(t.fromText(processOptions.concurrency)), {
    value: 'number',
    meaning:
      "how many handlers a process runs at once, all its lifecycles together, in equal shares; beside each lifecycle's own `concurrency`",
    unit: 'whole number, 1 to 10000',
    fallback: "none: only each lifecycle's own",
    special: 'callbacks and background work do not count',
    options: ['concurrency'],
  }),
  threads: about(t.optional(t.fromText(processOptions.threads)), {
    value: 'number',
    meaning: 'the most worker threads in each process, for handlers declared as `thread(...)`',
    unit: 'whole number, 1 to 256',
    fallback: 'one fewer than there are cores, shared among the workers; at least 1',
    special: 'none is started until a step needs one',
    options: ['threads'],
  }),
  threadMemory: about(t.optional(t.fromText(processOptions.threadMemoryMb)), {
    value: 'MB',
    meaning: 'how much heap one worker thread may use; a step that needs more fails',
    unit: 'MB, 16 to 65536',
    fallback: 'the limit that Node sets for a thread',
    options: ['threadMemoryMb'],
  }),
  blockedAfter: about(processOptions.blockedAfter, {
    value: 'duration',
    meaning: 'how long the event loop may stand still before it counts as blocked and is reported',
    unit: 'duration, 0ms to 1m',
    fallback: '`200ms`',
    special: '`0ms`: not checked',
    options: ['blockedAfter'],
  }),
  clockHold: about(processOptions.clockHold, {
    value: 'duration',
    meaning:
      "how long a forward step of the server's clock must last before deadlines, removals and the ends of leases follow it",
    unit: 'duration, 0s to 1h',
    fallback: '`60s`',
    special: '`0s`: immediately',
    options: ['clockHold'],
  }),
  beatEvery: about(processOptions.beatEvery, {
    value: 'duration',
    meaning: 'how often a replica writes its document in `phaselock.replicas`, by which people see it',
    unit: 'duration, 0s to 10m',
    fallback: '`10s`',
    special: '`0s`: never, so `phaselock replicas` shows only its name and phases',
    options: ['beatEvery'],
  }),
  appVersion: about(processOptions.appVersion, {
    value: 'version',
    meaning: "the version of your app, which `phaselock replicas` shows beside Phaselock's own",
    unit: 'text of 1 to 100 characters',
    fallback: "that of the main module's package.json",
    options: ['appVersion'],
  }),
  sweepEvery: about(processOptions.sweepEvery, {
    value: 'duration',
    meaning: 'how often one of the replicas takes the census of all documents while no one looks',
    unit: 'duration, 0s to 10m',
    fallback: '`5m`',
    special: '`0s`: not by this replica',
    options: ['sweepEvery'],
  }),
  tickEvery: about(processOptions.tickEvery, {
    value: 'duration',
    meaning:
      'how often a replica looks for what is due and nobody has rung for, and the least pause of a wait without `for`',
    unit: 'duration, 1s to 10s',
    fallback: '`1s`',
    special: 'pauses and requests to cancel are seen as late as that, too',
    options: ['tickEvery'],
  }),
  earlyRecovery: about(t.withDefault(t.oneOf(['on', 'off']), 'off'), {
    value: 'on',
    meaning: "whether leases end as soon as Kubernetes reports that their process's container has ended",
    unit: '`on` or `off`',
    fallback: '`off`: they end after their lockTimeout',
    special: '`on` needs POD_NAME, POD_NAMESPACE and the right to read pods (docs/kubernetes.md)',
    options: ['alongside'],
  }),
  locks: about(t.optional(t.oneOf(['auto', 'mongodb', 'postgres', 'mysql', 'redis', 'redis-quorum', 'memory'])), {
    value: 'provider',
    meaning: 'where named locks are kept',
    unit: '`auto`, `mongodb`, `postgres`, `mysql`, `redis`, `redis-quorum` or `memory`',
    fallback: "`auto`: by the scheme of the locks' URL, else by the mode",
    special: '`memory`: only this process sees them',
    options: ['locks.provider'],
  }),
  locksUrl: about(t.optional(filled('a connection string such as redis://host:6379 or postgres://host/database')), {
    value: 'url',
    meaning:
      'the server of named locks: mongodb://, postgres://, mysql:// or redis://; three of redis:// with commas between them are a quorum',
    unit: 'connection string',
    fallback: "the process's own MongoDB",
    options: ['locks.url', 'locks.client'],
  }),
  mode: about(t.optional(t.oneOf(['auto', 'single', 'distributed'])), {
    value: 'mode',
    meaning: 'whether other processes use the same named locks',
    unit: '`auto`, `single` or `distributed`',
    fallback: '`auto`: distributed with a MongoDB, a POD_NAME or in Kubernetes, else single',
    special: '`single`: locks in memory; `distributed`: refuses to start without a server for them',
    options: ['locks.mode'],
  }),
  schedulesCollection: about(t.withDefault(collection, 'schedules'), {
    value: 'name',
    meaning: 'the collection in which the commands find schedules',
    unit: 'name',
    fallback: '`schedules`',
    special: '`start` uses those of the code that creates them (`collections` of Schedules)',
  }),
  runsCollection: about(t.withDefault(collection, 'runs'), {
    value: 'name',
    meaning: 'the collection in which the commands find the runs of schedules',
    unit: 'name',
    fallback: '`runs`',
    special: '`start` uses those of the code that creates them (`collections` of Schedules)',
  }),
  auditFor: about(t.withDefault(t.duration('1h', '3650d'), '90d'), {
    value: 'duration',
    meaning: 'how long the entries that commands leave in the audit are kept',
    unit: 'duration, 1h to 3650d',
    fallback: '`90d`',
  }),
  http: about(t.optional(t.fromText(t.whole(0, 65_535))), {
    value: 'port',
    meaning: 'the port for /livez, /readyz and /metrics',
    unit: 'port, 0 to 65535',
    fallback: 'off: no web server is loaded',
    special: '`0`: any free port, printed at start',
  }),
  httpHost: about(t.withDefault(t.matching('an address or host name to listen on', /^[A-Za-z0-9.:_-]+$/), '0.0.0.0'), {
    value: 'address',
    meaning: 'the address that the --http port is bound to',
    unit: 'address',
    fallback: '`0.0.0.0`: all addresses of this machine',
    special: '`127.0.0.1`: this machine only',
  }),
  answerTokens: about(t.optional(filled('a file')), {
    value: 'file',
    meaning: 'who may see and answer questions at /questions of the --http port: a line `name: token` for each',
    unit: 'path, from the current folder',
    fallback: 'nobody: there is no /questions',
    special: 'read anew for each request; a token has 20 characters or more',
  }),
  transitions: about(t.optional(t.oneOf(['on', 'off'])), {
    value: 'on',
    meaning: "whether each document's move to another phase is logged",
    unit: '`on` or `off`',
    fallback: '`on` with a local database, else `off`',
    special: 'at most 20 lines a second; the rest is counted',
  }),
  log: about(t.optional(t.oneOf(['json', 'pretty'])), {
    value: 'format',
    meaning: 'the format of log lines (on standard error)',
    unit: '`json` or `pretty`',
    fallback: '`pretty` on a terminal, else `json`',
  }),
  logLevel: about(t.optional(t.oneOf(['debug', 'info', 'warn', 'error', 'silent'])), {
    value: 'level',
    meaning: 'the lowest level that is logged',
    unit: '`debug`, `info`, `warn`, `error` or `silent`',
    fallback: '`info` for `start`, `warn` for the other commands',
    special: '`debug`: errors are printed with their stack; `silent`: no log',
  }),
})

/** The settings of a process, checked and with their defaults: durations in milliseconds. */
export type Settings = t.ValueOf<typeof settingsSchema>
export type SettingKey = keyof Settings

export interface SettingInfo extends SettingText {
  readonly key: SettingKey
  readonly variable: string
  /** Its key with dashes: `data-dir`. */
  readonly flag: string
}

/** Each setting with its description, in the order of the documentation. */
export const SETTINGS: readonly SettingInfo[] = Object.entries(settingsSchema.fields).map(([key, type]) => {
  const flag = key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
  const variable = `PHASELOCK_${flag.replaceAll('-', '_').toUpperCase()}`
  return { key: key as SettingKey, flag, variable, ...texts.get(type)! }
})

/** The settings that `new Replica` accepts, as its options; those that aren't given are undefined. */
export const optionsOfReplica = (settings: Partial<Settings>) =>
  ({
    name: settings.name,
    doorbell: settings.doorbell,
    grace: inMs(settings.grace),
    concurrency: settings.concurrency,
    threads: settings.threads,
    threadMemoryMb: settings.threadMemory,
    blockedAfter: inMs(settings.blockedAfter),
    clockHold: inMs(settings.clockHold),
    beatEvery: inMs(settings.beatEvery),
    appVersion: settings.appVersion,
    sweepEvery: inMs(settings.sweepEvery),
    tickEvery: inMs(settings.tickEvery),
  }) as const

/** A duration in the form that options accept. */
export const inMs = (ms: number | undefined): `${number}ms` | undefined => (ms === undefined ? undefined : `${ms}ms`)
