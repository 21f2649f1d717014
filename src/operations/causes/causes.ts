import { ageToSay, type CensusRequest } from '../inspect/count.js'
import type { Count } from '../inspect/count-text.js'
import { NotFound, UsageError } from '../system/errors.js'
import type { System } from '../system/system.js'
import { hasDoubled } from './acks.js'
import { changesBefore } from './before.js'
import { documentRows } from './document-rows.js'
import { helpedBefore } from './helped.js'
import { type Quiet, quietOf } from './quiet.js'
import { causesIn, readChanges, readEnded, readSources, type Sources } from './read.js'
import { begunAt, type CauseRow, causeId, type FoundCause, inOrder, isAcknowledged, MOST_ROWS } from './row.js'
import { scheduleRows } from './schedule-rows.js'
import { systemRows } from './system-rows.js'
import { versionRows } from './version-rows.js'

/** All that needs a person. Times are the server's. */
export interface Causes {
  readonly now: Date
  /** The time of the oldest census that it rests on; null: there is none. */
  readonly asOf: Date | null
  /** True if that is so long ago that it has to be said. */
  readonly isOld: boolean
  /** At most 50, those that somebody deals with last. */
  readonly rows: readonly CauseRow[]
  /** The number of rows that were left out; an estimate if a census has left out some. */
  readonly more: Count
  /** The number of all that nobody deals with. */
  readonly needsYou: number
  /** The lifecycles without a census, so that nothing is known of their documents, and the reason. */
  readonly noCensus: readonly { readonly lifecycle: string; readonly why: string }[]
  /** What this user may not read, so that nothing is known of it. */
  readonly unread: readonly string[]
  /** What there is to say if nothing needs a person. */
  readonly quiet: Quiet
}

/**
 * What needs a person: one row for each thing, the most severe kind first, and of a kind the oldest first. It reads the census, what replicas report and
 * Phaselock's own collections, and no document of a lifecycle.
 * @example (await causes(system)).rows[0] // { id: '3f9a0c1b22d4', kind: 'park', lifecycle: 'order', text: 'parked in Packing: no paper', documents: { n: 12 }, ... }
 */
export async function causes(system: System, request: CensusRequest = {}): Promise<Causes> {
  return (await causesWith(system, request)).causes
}

/** The same, with what it was made from. */
export async function causesWith(
  system: System,
  request: CensusRequest,
): Promise<{ readonly causes: Causes; readonly sources: Sources }> {
  const unread = new Set<string>()
  const sources = await readSources(system, request, (source) => unread.add(source))
  const { now, census, without } = sources
  const all = rowsOf(sources)
  const rows = await told(system, all.slice(0, MOST_ROWS), sources, unread)
  const asOf = oldestOf([...census.values()].map(({ at }) => at))
  const causes = {
    ...{ now, asOf, isOld: asOf !== null && ageToSay({ at: asOf }, now) !== undefined },
    ...{ rows, more: moreOf(sources, all), needsYou: all.filter((row) => !isAcknowledged(row)).length },
    ...{
      noCensus: [...without].map(([lifecycle, why]) => ({ lifecycle, why })),
      unread: [...unread],
      quiet: quietOf(sources),
    },
  }
  return { causes, sources }
}

/**
 * One row, also if the list leaves it out.
 * @param id its id, or the cause that documents recorded
 * @throws NotFound if there is no such row now; UsageError if several have that cause
 */
export async function causeNamed(system: System, id: string): Promise<{ readonly row: CauseRow; readonly now: Date }> {
  const unread = new Set<string>()
  const sources = await readSources(system, {}, (source) => unread.add(source))
  const [row] = await told(system, [rowMeant(rowsOf(sources), id)], sources, unread)
  return { row: row!, now: sources.now }
}

/** Rows with what changed before, and what helped. */
async function told(
  system: System,
  rows: readonly CauseRow[],
  sources: Sources,
  unread: Set<string>,
): Promise<CauseRow[]> {
  const names = [...new Set(rows.flatMap(({ id, cause }) => (cause === undefined ? [id] : [id, cause])))]
  const [changes, ended] = await Promise.all([
    readChanges(system, rows, sources, (source) => unread.add(source)),
    readEnded(system, names, (source) => unread.add(source)),
  ])
  return rows.map((row) => ({
    ...row,
    before: changesBefore(row, changes),
    helped: helpedBefore(row, ended, sources.now),
  }))
}

/** The row with an id, or the only one with a cause that documents recorded. @throws NotFound; UsageError if several have it */
function rowMeant(rows: readonly CauseRow[], id: string): CauseRow {
  const own = rows.find((row) => row.id === id)
  if (own) return own
  const [found, ...others] = rows.filter(({ cause }) => cause === id)
  if (found === undefined)
    throw new NotFound(
      `there is no cause ${id} now: it is gone, or never was`,
      { reason: 'noCause', id },
      'see: phaselock causes',
    )
  if (others.length === 0) return found
  const ids = [found, ...others].map((row) => `${row.id} (${row.lifecycle}, ${row.kind})`).join(', ')
  throw new UsageError(`several rows have the cause ${id}: ${ids}`, undefined, 'name one of them by its id')
}

/** The rows of all sources in their order, with their acknowledgements. */
export function rowsOf(sources: Sources): CauseRow[] {
  const { now, census, flows, mixed, pauses, acks, schedules } = sources
  const found: FoundCause[] = [
    ...systemRows(sources),
    ...[...census.values()].flatMap((one) =>
      documentRows({ census: one, flow: causesIn(one, flows.get(one._id)), pauses, now }),
    ),
    ...scheduleRows(schedules, now),
    ...versionRows(mixed, census, now),
  ]
  const rows = found.map(({ key, action, ...row }): CauseRow => {
    const id = causeId({ ...row, key })
    const known = acks.get(id)
    const begun = begunAt(row)
    const ack = known && (begun === null || begun <= known.since) ? known : undefined
    return {
      ...{ id, ...row, before: [], helped: [] },
      ...(action && { action: action(id) }),
      ...(ack && {
        ack: {
          ...{ by: ack.by, note: ack.note, since: ack.since, until: ack.until },
          doubled: hasDoubled(ack, row.documents),
        },
      }),
    }
  })
  return rows.sort(inOrder)
}

function moreOf({ census }: Sources, all: readonly CauseRow[]): Count {
  const left = [...census.values()].reduce((sum, one) => sum + one.moreErrors + one.moreParks, 0)
  const n = Math.max(0, all.length - MOST_ROWS) + left
  // Not each group that a census has left out is a row.
  return left > 0 ? { n, about: true } : { n }
}

const oldestOf = (times: readonly Date[]): Date | null =>
  times.reduce<Date | null>((oldest, one) => (oldest === null || one < oldest ? one : oldest), null)
