import { type AbstractCursor, type Collection, type Db, type Document, MongoNetworkTimeoutError } from 'mongodb'

/** The time limit of a command on a client that sets none of its own. */
const LONGEST_MS = 10_000
/** Added so that the driver's own limit applies first wherever it works. */
const SLACK_MS = 500

const READS = ['findOne', 'distinct', 'countDocuments', 'indexes'] as const
const WRITES = ['updateOne', 'updateMany', 'findOneAndUpdate', 'deleteMany', 'bulkWrite', 'insertMany'] as const

/** By client and lifecycle: a third of its lockTimeout. */
const limits = new WeakMap<object, Map<string, number>>()

/**
 * Limits every command on this database's client to about a third of this lockTimeout, from now on. Needed where the lockTimeout in
 * force is shorter than the one the client was made for, because the driver's own limits can't change.
 * @param lockTimeoutMs undefined: the lifecycle no longer has such a limit
 */
export function limitCommands({ client }: Db, lifecycle: string, lockTimeoutMs: number | undefined): void {
  if (!client) return // from another driver, which doesn't expose it
  const known = limits.get(client) ?? new Map<string, number>()
  if (lockTimeoutMs === undefined) known.delete(lifecycle)
  else limits.set(client, known.set(lifecycle, Math.floor(lockTimeoutMs / 3)))
}

/** A command that was given up: it may or may not have been executed. */
export class NoAnswer extends MongoNetworkTimeoutError {
  override get name(): string {
    return 'NoAnswer'
  }
  constructor(readonly afterMs: number) {
    super(`expected the driver to answer or fail within ${afterMs} ms, but it did neither`)
  }
}

/**
 * Makes every command of this collection object end. The driver has a limit for each of its waits but one: a command written to a
 * connection at the very moment the other side closes it waits forever for its socket to drain (driver 7.9: `writeCommand`). Some
 * restarts of a server under load leave one such command. The replica would never tick again, or would hold and renew a document
 * forever.
 * @param client its client, for {@link limitCommands}
 * @param before what a command awaits first, within its time; undefined: nothing
 * @returns the same object
 */
export function alwaysAnswering<T extends Document>(
  collection: Collection<T>,
  socketTimeoutMS?: number,
  client?: object,
  before: () => Promise<unknown> | undefined = () => undefined,
): Collection<T> {
  const withinMs = () =>
    Math.min(socketTimeoutMS || LONGEST_MS, ...((client && limits.get(client)?.values()) ?? [])) + SLACK_MS
  for (const name of [...READS, ...WRITES]) {
    const command = collection[name].bind(collection) as (...args: unknown[]) => Promise<unknown>
    const send = (...args: unknown[]) => before()?.then(() => command(...args)) ?? command(...args)
    Object.assign(collection, { [name]: (...args: unknown[]) => answered(send(...args), withinMs()) })
  }
  for (const name of ['find', 'aggregate'] as const) {
    const open = collection[name].bind(collection) as (...args: unknown[]) => AbstractCursor
    Object.assign(collection, { [name]: (...args: unknown[]) => withBoundedRead(open(...args), withinMs) })
  }
  return collection
}

function withBoundedRead(cursor: AbstractCursor, withinMs: () => number): AbstractCursor {
  const toArray = cursor.toArray.bind(cursor)
  Object.assign(cursor, { toArray: () => answered(toArray(), withinMs()) })
  const { explain } = cursor as { explain?: (...args: unknown[]) => Promise<unknown> }
  if (explain) {
    Object.assign(cursor, { explain: (...args: unknown[]) => answered(explain.apply(cursor, args), withinMs()) })
  }
  return cursor
}

/**
 * Limits the time of what isn't a command of a collection object: `createCollection`, `drop`, or the next entry of a tailable
 * cursor, which takes up to its `maxAwaitTimeMS` on its own.
 * @throws NoAnswer
 */
export function answered<T>(work: Promise<T>, withinMs: number = LONGEST_MS + SLACK_MS): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new NoAnswer(withinMs)), withinMs)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
