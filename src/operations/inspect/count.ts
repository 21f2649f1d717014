import type { Collection } from 'mongodb'
import { packageVersion } from '../../config/index.js'
import { isServerError } from '../../database/index.js'
import { isInForce, type LockTimeoutInForce, Paused, phasesIn, readLockTimeouts, termsOf } from '../../lock/index.js'
import {
  type Census,
  type LifecycleModel,
  lookAtCensus,
  newMemory,
  type PhaseCensus,
  readCensus,
  takeCensus,
  unknownAmong,
  workingPhases,
} from '../../phases/index.js'
import { systemClock } from '../../time/index.js'
import type { System } from '../system/system.js'

export { COUNT_LIMIT } from '../../lock/index.js'

const UNAUTHORIZED = 13

/** The documents of one phase, as the last census of its lifecycle counted them. */
export interface PhaseCount extends PhaseCensus {
  readonly lifecycle: string
  /** When that was, by the server's clock. */
  readonly at: Date
}

/** The censuses of a system's lifecycles. */
export interface CensusRead {
  /** By lifecycle, in their order; one of which no census was ever taken is absent. */
  readonly census: ReadonlyMap<string, Census>
  /** The server's time. */
  readonly now: Date
  /** The lifecycles without a census, and the reason. */
  readonly without: ReadonlyMap<string, string>
}

/** An older census is shown with its time. */
const OLD_MS = 30_000

/** The age of a census in milliseconds, if it is old enough to be said. */
export function ageToSay({ at }: Pick<Census, 'at'>, now: Date): number | undefined {
  const ageMs = now.getTime() - at.getTime()
  return ageMs > OLD_MS ? ageMs : undefined
}

export interface CensusRequest {
  /** True to take a census in this process now, which reads what a replica's census does. It isn't stored. Default false. */
  readonly fresh?: boolean | undefined
  /** True to take one of each lifecycle that has none: no replica runs it, or it has just started. It isn't stored. Default false. */
  readonly takeMissing?: boolean | undefined
}

/**
 * Reads the last census of each lifecycle, and no document. The next ones come more often for a while, because somebody looks.
 * @example (await censusFor(system)).census.get('order')?.errors // [{ text: 'connect ECONNREFUSED', documents: { n: 300 }, ... }]
 * @throws the database's own errors
 */
export async function censusFor(
  system: Pick<System, 'db' | 'models'>,
  { fresh = false, takeMissing = false }: CensusRequest = {},
): Promise<CensusRead> {
  if (fresh) return takenNow(system)
  const { db, models } = system
  const names = models.map(({ name }) => name)
  let refused: string | undefined
  const read = await readCensus(db, names).catch((error: unknown) => {
    if (!isServerError(error, UNAUTHORIZED)) throw error
    refused = `this user may not read it: ${error.message}`
    return { census: new Map<string, Census>(), now: undefined }
  })
  // A role that only reads can't say that it looks, and gets older ones.
  await lookAtCensus(db).catch((error: unknown) => (isServerError(error) ? undefined : Promise.reject(error)))
  const missing = names.filter((name) => !read.census.has(name))
  const why = refused ?? 'no replica has taken one yet: none runs it, it has just started, or it is of an older version'
  const isTaken = takeMissing && refused === undefined && missing.length > 0
  const taken = isTaken
    ? await takenNow({ db, models: models.filter(({ name }) => missing.includes(name)) })
    : undefined
  const found = names.flatMap((name) => {
    const one = read.census.get(name) ?? taken?.census.get(name)
    return one ? [[name, one] as const] : []
  })
  return {
    census: new Map(found),
    now: taken?.now ?? read.now ?? (await serverNow(system)),
    without: taken?.without ?? new Map(missing.map((name) => [name, why])),
  }
}

const serverNow = async ({ db }: Pick<System, 'db'>): Promise<Date> =>
  (await db.admin().command({ hello: 1 }))['localTime'] ?? systemClock.now()

/** Takes a census of each lifecycle in this process; one that fails leaves out only itself. */
async function takenNow({ db, models }: Pick<System, 'db' | 'models'>): Promise<CensusRead> {
  const inForce = await readLockTimeouts(
    db,
    models.map(({ name }) => name),
  )
  const before = await readCensus(db).catch(() => undefined)
  const now = [...inForce.values()][0]?.now ?? before?.now ?? (await serverNow({ db }))
  const version = await packageVersion().catch(() => '?')
  const [census, without] = [new Map<string, Census>(), new Map<string, string>()]
  for (const model of models) {
    const last = before?.census.get(model.name)
    try {
      const { taken } = await takeCensus({
        db,
        model,
        clock: systemClock,
        memory: newMemory(last),
        ...judgedBy(model, inForce, now),
        ...whyBy(last),
      })
      census.set(model.name, { ...taken, everyMs: last?.everyMs ?? 0, by: 'phaselock --fresh', version })
    } catch (error) {
      if (!isServerError(error) && !(error instanceof Error && error.name === 'CensusTooSlow')) throw error
      without.set(model.name, `it could not be taken: ${error.message}`)
    }
  }
  return { census, now, without }
}

function judgedBy(
  model: LifecycleModel,
  inForce: ReadonlyMap<string, LockTimeoutInForce & { readonly now: Date }>,
  now: Date,
) {
  const { lockTimeoutMs, progress, legacyWriters } = model.settings
  const known = inForce.get(model.name)
  const pauses = known?.pauses.filter((pause) => isInForce(pause, now)) ?? []
  const working = workingPhases(model)
  const terms = termsOf(known?.dueMs ?? lockTimeoutMs, { progress, legacyWriters, working })
  return { terms, paused: new Paused(pauses), now }
}

/** What only a replica knows, as the last census has it. */
const whyBy = (last: Census | undefined) =>
  ({
    why(phase: string) {
      const known = last?.overdue.find((one) => one.phase === phase)?.why
      return known === 'limit' ? 'limit' : 'busy'
    },
  }) as const

/**
 * The documents of each phase by condition, as the last census counted them, in the order of the lifecycles and their phases.
 * @example await countPhases(system) // [{ lifecycle: 'order', phase: 'Creating', documents: { n: 4 }, due: { n: 1 }, held: 1, ... }, ...]
 */
export async function countPhases(system: System, request: CensusRequest = {}): Promise<PhaseCount[]> {
  return phaseCounts(await censusFor(system, request))
}

/** The same, of censuses that were read. */
export const phaseCounts = ({ census }: CensusRead): PhaseCount[] =>
  [...census.values()].flatMap(({ _id: lifecycle, at, phases }) => phases.map((one) => ({ lifecycle, at, ...one })))

/** The phases of documents that aren't among the known ones, including those found only in an array. */
export async function unknownPhases(collection: Collection, known: { has(phase: string): boolean }): Promise<string[]> {
  return unknownAmong(await phasesIn(collection), known)
}
