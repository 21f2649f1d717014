import type { Collection, Document } from 'mongodb'
import { isServerError } from './driver-errors.js'

/** The server answers like MongoDB, but does something else. */
export class NotMongoDB extends Error {
  override readonly name = 'NotMongoDB'
  constructor(
    /** The difference, such as 'a query for dates finds a number'. */
    readonly problem: string,
    options?: ErrorOptions,
  ) {
    super(
      `expected a server that does what MongoDB does, got one on which ${problem}: locks would not hold there, or nothing would ever be ` +
        'found due; connect to a MongoDB server (docs/database.md)',
      options,
    )
  }
}

type Entries = Collection<Document & { _id: string }>
const DAY_MS = 86_400_000
const NO_SUCH_INDEX = 'phaselock_no_such_index'
/** BadValue, FailedToParse, CommandNotFound, CommandNotSupported, NotImplemented. */
const UNKNOWN_TO_SERVER: ReadonlySet<unknown> = new Set([2, 9, 59, 115, 238])

/**
 * Tries on one document the features that the lock protocol rests on. A server that only speaks MongoDB's wire protocol may do
 * these otherwise without an error. Leaves a field `probe` in the document; several callers may do so at the same time.
 * @throws NotMongoDB, and what the driver throws
 */
export async function requireServerSemantics(collection: Entries, id: string): Promise<void> {
  const problem = await failing(collection, id).catch((error: unknown) => {
    if (!isServerError(error) || !UNKNOWN_TO_SERVER.has(error.code)) throw error
    throw new NotMongoDB(`one of the lock protocol's commands is refused (${error.message})`, { cause: error })
  })
  if (problem !== undefined) throw new NotMongoDB(problem)
}

async function failing(collection: Entries, _id: string): Promise<string | undefined> {
  const updated = await collection.findOneAndUpdate(
    { _id },
    [{ $set: { probe: { at: '$$NOW', n: 1 } } }, { $set: { 'probe.n': 2, 'probe.was': '$probe.n' } }],
    { returnDocument: 'after', projection: { probe: 1 } },
  )
  const { at, n, was } = updated?.['probe'] ?? {}
  if (!(at instanceof Date)) return 'an update stores something else than a date for $$NOW'
  if (n !== 2 || was !== 1)
    return "an update by a pipeline doesn't do its stages in order, each on the values before it"
  const finds = async (filter: Document, options = {}) =>
    (await collection.findOne({ _id, ...filter }, { projection: { _id: 1 }, ...options })) !== null
  const isBefore = (ms: number) => ({ $expr: { $lt: ['$probe.at', { $add: ['$$NOW', ms] }] } })
  if (!(await finds(isBefore(DAY_MS)))) return "a query that compares with $$NOW doesn't find what it must find"
  if (await finds(isBefore(-DAY_MS))) return 'a query that compares with $$NOW finds what it must not find'
  if (await finds({ 'probe.n': { $lt: at } })) return 'a query for dates finds a number'
  const ignoresHint = await finds({}, { hint: NO_SUCH_INDEX }).catch(() => false)
  return ignoresHint ? 'the hint of an index that is not there is ignored' : undefined
}
