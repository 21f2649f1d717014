import type { Collection, CreateIndexesOptions, IndexSpecification } from 'mongodb'
import { formatMs, sleep, systemClock } from '../time/index.js'
import { isNetworkError, isServerError } from './driver-errors.js'

/** A build reads the whole collection: it has a limit of its own, not a third of the lock timeout like everything else. */
const WITHIN_MS = 3_600_000
const TELL_EVERY_MS = 10_000
/** The pause after a lost connection; a server that is still building makes the next request wait for the same build. */
const AGAIN_AFTER_MS = 1_000
const OUT_OF_DISK_SPACE = 14031

/** The server's disk has too little room for what a first start needs. */
export class ServerOutOfSpace extends Error {
  override readonly name = 'ServerOutOfSpace'
}

export interface IndexBuild {
  /** Called every 10 s while it lasts, with a line for people. */
  readonly waiting?: ((said: string) => void) | undefined
  readonly everyMs?: number
  readonly withinMs?: number
}

/**
 * Creates an index where it is missing, however long that takes within an hour. If several replicas ask for it at the same time,
 * one starts the build and the others wait for it. If the connection ends during the build, it asks again: the server goes on
 * building, or starts over.
 * @throws ServerOutOfSpace; whatever else the server refuses it with; MongoNetworkError when an hour was not enough
 */
export async function buildIndex(
  collection: Collection,
  key: IndexSpecification,
  { waiting = () => undefined, everyMs = TELL_EVERY_MS, withinMs = WITHIN_MS }: IndexBuild = {},
  options: CreateIndexesOptions = {},
): Promise<void> {
  const startedMs = systemClock.monotonicMs()
  const tookMs = () => systemClock.monotonicMs() - startedMs
  const what = `index ${JSON.stringify(key)} of ${collection.collectionName}`
  const telling = setInterval(() => waiting(`still building ${what}, after ${formatMs(tookMs())}`), everyMs)
  try {
    for (;;) {
      try {
        // The driver's types leave out that a command may have a socket timeout of its own.
        await collection.createIndex(key, { ...options, socketTimeoutMS: withinMs } as CreateIndexesOptions)
        return
      } catch (error) {
        if (isServerError(error, OUT_OF_DISK_SPACE)) {
          throw new ServerOutOfSpace(
            `expected the server to have room for ${what}, got: ${error.message}; free some space on the server's disk and start again`,
          )
        }
        if (!isNetworkError(error) || tookMs() >= withinMs) throw error
        waiting(`the connection ended while building ${what}, asking again: ${error.message}`)
      }
      await sleep(AGAIN_AFTER_MS)
    }
  } finally {
    clearInterval(telling)
  }
}
