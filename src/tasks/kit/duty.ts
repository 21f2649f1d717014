import { hostname } from 'node:os'
import type { Db, Document } from 'mongodb'
import { endDuties, takeDuties } from '../../lock/index.js'
import { checkOptions, replicaIdentity, t } from '../../options/index.js'
import { recordedError } from '../../phases/index.js'
import { type Duration, durationMs, processMs } from '../../time/index.js'

/** A duty of a package, which one process does for all within an interval. */
export interface PackageDuty {
  /** Its name, in `phaselock status` too. */
  readonly name: string
  /** The interval, by the server's clock. */
  readonly every: Duration
  /** Does it. @returns the findings, which are stored with the duty */
  readonly run: () => Promise<object>
}

const aDuty = t.object({
  name: t.name,
  every: t.durationText('1s', '1d'),
  run: t.aFunction<PackageDuty['run']>(),
} satisfies t.TypesOf<PackageDuty>)

const self = replicaIdentity(`${hostname()}-${process.pid}`)
let shift = 0

/**
 * Does a duty if no process has done it within its interval, as replicas do theirs (the collection `phaselock.duties`): for packages, in processes with
 * or without a replica. Call it about once in the interval.
 * @example await doDuty(db, { name: 'expired sessions', every: '10m', run: async () => ({ removed: await removeExpired() }) })
 * @returns the findings of this process; undefined if another one has done it
 * @throws what `run` throws, stored with the duty if the database takes it; what the driver throws; InvalidOptions
 */
export async function doDuty(db: Db, duty: PackageDuty): Promise<object | undefined> {
  const { name, every, run } = checkOptions('doDuty', aDuty, duty)
  shift += 1
  const mine = { by: self, shift }
  const taken = await takeDuties(db, [{ name, everyMs: durationMs(every) }], mine)
  if (taken.length === 0) return undefined
  const startedMs = processMs()
  const tookMs = () => Math.round(processMs() - startedMs)
  let found: object
  try {
    found = await run()
  } catch (error) {
    const failed = { name, tookMs: tookMs(), error: recordedError(error).message }
    // The caller has to see the duty's own error, even if it can't be stored.
    await endDuties(db, mine, [failed]).catch(() => undefined)
    throw error
  }
  await endDuties(db, mine, [{ name, tookMs: tookMs(), found: found as Document }])
  return found
}
