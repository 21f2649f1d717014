import { BSON, type Collection, type Db } from 'mongodb'
import { NotFound, Refused, UsageError } from 'phaselock/operations'
import { isDuplicateKey, protocolCollection, type Ring } from 'phaselock/tasks'
import { lossInDocument } from '../store/codec.js'

/** The collection of all configurations, one document each, with its history. */
export const CONFIG_COLLECTION = 'phaselock.config'

/** Rung after a change. No lifecycle has this name, so replicas ignore it. */
export const CONFIG_RING: Ring = { lifecycles: ['phaselock-state'], phases: ['config'] }

/** The limits of one configuration: the size of a value, and the number of versions that are kept, the one in force included. */
export const LARGEST_VALUE = 256 * 1024
export const MOST_VERSIONS = 50
const MOST_REFUSALS = 20

/** The time after which a refusal counts as over: a process that still refuses the value says so again within a third of it. */
export const REFUSAL_LASTS_MS = 180_000

export const A_NAME = "1 to 200 letters, digits, '-', '_' and '.'"
export const isName = (name: unknown): name is string => typeof name === 'string' && /^[\w.-]{1,200}$/.test(name)

/** One version of a configuration. */
export interface ConfigVersion<T = unknown> {
  /** 1 for the first stored value; 0 for the initial one of the definition, which isn't stored. */
  readonly version: number
  readonly value: T
  /** The author. */
  readonly by: string
  readonly reason?: string
  /** The time of the change by the server's clock. */
  readonly at: Date
}

/** A process whose schema refuses the stored value, and works with an older one. */
export interface ConfigRefusal {
  /** The process: its host and process id, or the name it was given. */
  readonly by: string
  /** The version that it refuses. */
  readonly version: number
  /** The schema's issues. */
  readonly issues: readonly string[]
  readonly at: Date
}

/** A configuration as it is stored. `_id`: `<environment>:<name>`. */
export interface ConfigDocument extends ConfigVersion {
  readonly _id: string
  readonly environment: string
  readonly name: string
  /** Earlier versions, newest first. */
  readonly history: readonly ConfigVersion[]
  readonly refused: readonly ConfigRefusal[]
}

/** The author and the reason of a change. */
export interface ConfigChange {
  /** The author, at most 200 characters. */
  readonly by: string
  /** The reason, at most 500 characters. Default: none is kept. */
  readonly reason?: string | undefined
  /** The version that the change is based on, 0 for none: if another one is stored by now, the change is refused. Default: any. */
  readonly expectVersion?: number | undefined
}

/** The place of the configurations of one environment. */
export interface ConfigPlace {
  readonly db: Db
  /** Letters, digits, `-`, `_` and `.`. */
  readonly environment: string
}

const collectionOf = (db: Db): Collection<ConfigDocument> => protocolCollection<ConfigDocument>(db, CONFIG_COLLECTION)

/** Creates the index that the looks of all processes read, without a document: (environment, name, version). */
export async function prepareConfig(db: Db): Promise<void> {
  await collectionOf(db).createIndex({ environment: 1, name: 1, version: 1 })
}

/** The stored versions by name; reads the index alone. */
export async function storedVersions({ db, environment }: ConfigPlace): Promise<Map<string, number>> {
  const projection = { _id: 0, name: 1, version: 1 }
  const found = await collectionOf(db).find({ environment }, { projection }).toArray()
  return new Map(found.map(({ name, version }) => [name, version]))
}

/** One configuration with its history; undefined if none is stored. */
export async function storedConfig(
  { db, environment }: ConfigPlace,
  name: string,
): Promise<ConfigDocument | undefined> {
  return (await collectionOf(db).findOne({ _id: `${environment}:${checkedName(name)}` })) ?? undefined
}

/** All configurations of the environment (default: of all) by name, without values and histories, with the refusals that last. */
export async function listConfigs({
  db,
  environment,
}: Pick<ConfigPlace, 'db'> & Partial<ConfigPlace>): Promise<Omit<ConfigDocument, 'value' | 'history'>[]> {
  const lasting = {
    $filter: {
      input: '$refused',
      cond: {
        $and: [
          { $eq: ['$$this.version', '$version'] },
          { $gt: ['$$this.at', { $subtract: ['$$NOW', REFUSAL_LASTS_MS] }] },
        ],
      },
    },
  }
  const stages = [
    { $match: environment === undefined ? {} : { environment } },
    { $sort: { name: 1 } },
    { $unset: ['value', 'history'] },
    { $set: { refused: lasting } },
  ]
  return (await collectionOf(db).aggregate(stages).toArray()) as Omit<ConfigDocument, 'value' | 'history'>[]
}

/**
 * Stores a value as the next version. One conditional write: of several at the same time with the same `expectVersion` one succeeds.
 * @returns the stored version
 * @throws Refused if another version than `expectVersion` is stored; UsageError if the value can't be stored
 */
export async function storeConfig(
  place: ConfigPlace,
  name: string,
  value: unknown,
  { by, reason, expectVersion }: ConfigChange,
): Promise<ConfigVersion> {
  const { db, environment } = place
  checkValue(checkedName(name), value)
  checkChange({ by, reason, expectVersion })
  const current = { version: '$version', value: '$value', by: '$by', reason: '$reason', at: '$at' }
  const isNew = { $eq: [{ $type: '$version' }, 'missing'] }
  const history = { $slice: [{ $concatArrays: [[current], '$history'] }, MOST_VERSIONS - 1] }
  const next = {
    environment: { $literal: environment },
    name: { $literal: name },
    version: { $add: [{ $ifNull: ['$version', 0] }, 1] },
    value: { $literal: value },
    by: { $literal: by },
    reason: reason === undefined ? '$$REMOVE' : { $literal: reason },
    at: '$$NOW',
    history: { $cond: [isNew, [], history] },
    refused: [],
  }
  const _id = `${environment}:${name}`
  const based = expectVersion === undefined ? {} : { version: expectVersion === 0 ? { $exists: false } : expectVersion }
  const upsert = !expectVersion
  for (let attempt = 1; ; attempt += 1) {
    try {
      const stored = await collectionOf(db).findOneAndUpdate({ _id, ...based }, [{ $set: next }], {
        upsert,
        returnDocument: 'after',
        projection: { history: 0, refused: 0 },
      })
      if (stored) return versionOf(stored)
    } catch (error) {
      // Two first versions at the same time: the other one is stored by now.
      if (!isDuplicateKey(error) || attempt > 3) throw error
      if (expectVersion === undefined) continue
    }
    throw await changedSince(place, name, expectVersion as number)
  }
}

/**
 * The same value as an earlier version, as the next one.
 * @param check throws for a value that must not be stored
 * @throws NotFound if that version isn't kept; Refused; what `check` throws
 */
export async function rollBackConfig(
  place: ConfigPlace,
  name: string,
  change: ConfigChange & { /** Default: the one before the version in force. */ readonly to?: number | undefined },
  check?: (value: unknown) => Promise<void>,
): Promise<ConfigVersion> {
  const stored = await storedConfig(place, name)
  if (!stored) throw unknownConfig(place, name)
  const { to = stored.version - 1, reason = `back to version ${to}` } = change
  const earlier = stored.history.find(({ version }) => version === to)
  if (!earlier) {
    const kept = stored.history.map(({ version }) => version)
    const which = kept.length === 0 ? 'there is no earlier one' : `kept are ${kept.at(-1)} to ${kept[0]}`
    throw new NotFound(`${name}: expected an earlier version that is kept, got ${to}; ${which}`)
  }
  await check?.(earlier.value)
  // Based on what was read: a change in the meantime must not be rolled back unseen.
  return await storeConfig(place, name, earlier.value, {
    ...change,
    reason,
    expectVersion: change.expectVersion ?? stored.version,
  })
}

/** Notes that a process refuses the stored version; its earlier note is replaced. */
export async function noteRefusal(
  { db, environment }: ConfigPlace,
  name: string,
  { by, version, issues }: Omit<ConfigRefusal, 'at'>,
): Promise<void> {
  const others = { $filter: { input: '$refused', cond: { $ne: ['$$this.by', { $literal: by }] } } }
  const note = { by: { $literal: by }, version, issues: { $literal: issues }, at: '$$NOW' }
  const refused = { $slice: [{ $concatArrays: [[note], others] }, MOST_REFUSALS] }
  await collectionOf(db).updateOne({ _id: `${environment}:${name}`, version }, [{ $set: { refused } }])
}

export const versionOf = ({ version, value, by, reason, at }: ConfigVersion): ConfigVersion => ({
  version,
  value,
  by,
  ...(reason !== undefined && { reason }),
  at,
})

export const unknownConfig = ({ environment }: ConfigPlace, name: string): NotFound =>
  new NotFound(
    `expected the name of a stored configuration of the environment ${environment}, got ${name}`,
    undefined,
    'list them with: phaselock config',
  )

async function changedSince(place: ConfigPlace, name: string, expected: number): Promise<Refused> {
  const now = await storedConfig(place, name)
  const found = now ? `version ${now.version} by ${now.by} of ${now.at.toISOString()}` : 'none'
  return new Refused(
    `${name}: expected version ${expected} to be stored, got ${found}`,
    undefined,
    'look at it, and change it on the base of that version: phaselock config history',
  )
}

function checkedName(name: string): string {
  if (isName(name)) return name
  throw new UsageError(`expected a configuration's name of ${A_NAME}, got ${JSON.stringify(name)?.slice(0, 300)}`)
}

function checkChange({ by, reason, expectVersion }: ConfigChange): void {
  if (typeof by !== 'string' || by.trim() === '' || by.length > 200)
    throw new UsageError(
      `by: expected the author of the change, of 1 to 200 characters, got ${JSON.stringify(by)?.slice(0, 300)}`,
    )
  if (reason !== undefined && (typeof reason !== 'string' || reason.length > 500))
    throw new UsageError(`reason: expected at most 500 characters, got ${reason?.length ?? reason}`)
  if (expectVersion !== undefined && !(Number.isSafeInteger(expectVersion) && expectVersion >= 0))
    throw new UsageError(`expectVersion: expected a version, 0 for none, got ${expectVersion}`)
}

/** Values come back as they went in: anything that wouldn't is refused with its place. */
function checkValue(name: string, value: unknown): void {
  const loss = lossInDocument(value)
  if (loss) throw new UsageError(`${name}: ${loss.path}: ${loss.problem}`)
  const bytes = BSON.calculateObjectSize({ value })
  if (bytes > LARGEST_VALUE) throw new UsageError(`${name}: expected at most ${LARGEST_VALUE} bytes, got ${bytes}`)
}
