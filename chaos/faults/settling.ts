import type { Db } from 'mongodb'
import { idKey } from '../../dist/lock/index.js'
import { workingPhases } from '../../dist/phases/index.js'
import { apiGatewayDefinitions } from '../../dist/tasks/index.js'
import { sleep, systemClock } from '../../dist/time/index.js'
import { type DocumentKey, documentKey, type Ledger } from '../proof/ledger.ts'
import type { RestlessOwner } from './restless-owner.ts'

/** A document that should have moved, and where it is stuck. */
export interface StuckDocument {
  readonly document: DocumentKey
  readonly where: string
}

export interface SettlingOptions {
  readonly db: Db
  readonly owner: RestlessOwner
  readonly ledger: Ledger
  /** A document that hasn't moved for this long is stuck. */
  readonly patienceMs: number
  readonly stopped: () => boolean
}

const EVERY_MS = 1_000
/** If for this many times `patienceMs` no more documents have come to rest, those that haven't are stuck too, however much they move. */
const MOST_PATIENCES = 7

interface Unsettled extends StuckDocument {
  /** Until when it sleeps, if that is a retry's pause; a sound document has no other sleep. */
  readonly resumeAt: Date | undefined
}

/**
 * Waits until all sound documents are where they should be: gateways where their owner wants them, their databases and
 * domains in no working phase. Resolves to those that are stuck: neither moved nor asleep for longer than `patienceMs`.
 */
export async function settle({ db, owner, ledger, patienceMs, stopped }: SettlingOptions): Promise<StuckDocument[]> {
  const sinceMs = systemClock.now().getTime()
  let fewest = { count: Number.POSITIVE_INFINITY, atMs: sinceMs }
  for (;;) {
    const open = await unsettled(db, owner)
    const nowMs = systemClock.now().getTime()
    if (open.length === 0 || stopped()) return []
    if (open.length < fewest.count) fewest = { count: open.length, atMs: nowMs }
    if (nowMs - fewest.atMs > MOST_PATIENCES * patienceMs) return open
    if (nowMs - sinceMs > patienceMs) {
      const moved = new Map<DocumentKey, number>()
      for (const entry of await ledger.begins(open.map(({ document }) => document)))
        moved.set(entry.document, Math.max(entry.at.getTime(), moved.get(entry.document) ?? 0))
      const restsSince = ({ document, resumeAt }: Unsettled) =>
        Math.max(sinceMs, moved.get(document) ?? 0, resumeAt?.getTime() ?? 0)
      if (open.every((one) => nowMs - restsSince(one) > patienceMs)) return open
    }
    await sleep(EVERY_MS)
  }
}

async function unsettled(db: Db, owner: RestlessOwner): Promise<Unsettled[]> {
  const notArrived = new Set((await owner.notArrived()).map(idKey))
  const found = await Promise.all(
    apiGatewayDefinitions().all.map(async ({ name, model }) => {
      const isGateway = name === 'api-gateway'
      const filter = isGateway ? {} : { phase: { $in: workingPhases(model) } }
      const documents = await db
        .collection(model.collection)
        .find(filter, { projection: { phase: 1, state: 1, lockedAt: 1, lockedBy: 1, progress: 1 } })
        .toArray()
      return documents
        .filter(({ _id }) => !isGateway || notArrived.has(idKey(_id)))
        .map((document): Unsettled => {
          const resumeAt: unknown = document['progress']?.resumeAt
          const { phase, state, lockedAt, lockedBy, progress } = document
          return {
            document: documentKey(name, document._id),
            where: JSON.stringify({ phase, state, lockedAt, lockedBy, progress }),
            resumeAt: resumeAt instanceof Date ? resumeAt : undefined,
          }
        })
    }),
  )
  return found.flat()
}
