import type { Registry } from 'prom-client'
import type { CensusRead } from '../../operations/index.js'
import type { Census, LifecycleModel, PhaseCensus } from '../../phases/index.js'
import { Instruments, type Row } from './instruments.js'

/** The limit of the counts, for their descriptions. */
const LIMIT = 'as of the last census; exact up to 10,000'

/**
 * Gauges of documents, by the last census of each lifecycle: a scrape reads no document.
 * @param scrape reads the censuses; undefined: the database did not answer
 * @param models the lifecycles whose phases are shown
 */
export function censusGauges(
  registry: Registry,
  scrape: () => Promise<Pick<CensusRead, 'census' | 'now'> | undefined>,
  models: readonly LifecycleModel[],
): void {
  const instruments = new Instruments(registry)
  // Other apps may have lifecycles in the same database.
  const own = (census: ReadonlyMap<string, Census>) =>
    [...census.values()].filter(({ _id }) => models.some((model) => model.name === _id))
  const all = async () => own((await scrape())?.census ?? new Map())
  const gauge = (name: string, help: string, value: (row: PhaseCensus, census: Census) => number | undefined) =>
    instruments.gauge(name, help, ['lifecycle', 'phase'], async () =>
      (await all()).flatMap((census) =>
        census.phases.flatMap((row): Row<'lifecycle' | 'phase'>[] => {
          const found = value(row, census)
          return found === undefined ? [] : [[{ lifecycle: census._id, phase: row.phase }, found]]
        }),
      ),
    )
  const ofWorking = (value: (row: PhaseCensus, census: Census) => number) => (row: PhaseCensus, census: Census) =>
    row.kind === 'working' ? (row.paused ? 0 : value(row, census)) : undefined
  gauge(
    'documents_due',
    `Documents in working phases that are waiting for a replica (all replicas; ${LIMIT})`,
    ofWorking(({ due }) => due.n),
  )
  gauge(
    'oldest_due_seconds',
    'How long the oldest due document in a working phase had been due at the last census; 0 if none was',
    ofWorking(({ oldestDueAt }, { at }) =>
      oldestDueAt ? Math.max(0, (at.getTime() - oldestDueAt.getTime()) / 1_000) : 0,
    ),
  )
  gauge(
    'documents_undated',
    'Due documents that do not say since when, and count in no age; replicas date them within seconds (all replicas; counted up to 1000)',
    ofWorking(({ undated }) => undated),
  )
  gauge(
    'documents_failing',
    `Documents whose last step failed, and is tried again (all replicas; ${LIMIT}, of more than 1,000 an estimate)`,
    ({ kind, failing }) => (kind === 'working' ? failing.n : undefined),
  )
  gauge(
    'documents_parked',
    `Documents that are waiting for a person (all replicas; ${LIMIT})`,
    // In final phases and in those that this version lacks only a parked document waits for anybody.
    ({ kind, parked }) => (kind === 'working' || kind === 'resting' || parked.n > 0 ? parked.n : undefined),
  )
  gauge(
    'documents_unknown',
    `Documents in phases that their lifecycle does not have: they are left alone (all replicas; ${LIMIT})`,
    ({ kind, documents }) => (kind === 'unknown' ? documents.n : undefined),
  )
  instruments.gauge(
    'documents_waiting',
    "Documents that wait, by what for, as `on` of step.wait says, '-' where it doesn't (all replicas; as of the last census)",
    ['lifecycle', 'on'],
    async () => (await all()).flatMap(waits),
    'max',
  )
  instruments.gauge(
    'documents_overdue',
    'Documents that have been due for over a minute, by why: paused, limit, busy, unhandled (all replicas; as of the last census)',
    ['lifecycle', 'phase', 'why'],
    async () =>
      (await all()).flatMap(({ _id: lifecycle, overdue }) =>
        overdue.map(
          ({ phase, why, documents }): Row<'lifecycle' | 'phase' | 'why'> => [{ lifecycle, phase, why }, documents.n],
        ),
      ),
    'max',
  )
  instruments.gauge(
    'questions_open',
    'Documents that wait for an answer (all replicas; as of the last census)',
    ['lifecycle'],
    async () =>
      (await all()).map(({ _id, questions }): Row<'lifecycle'> => [{ lifecycle: _id }, questions.documents.n]),
    'max',
  )
  instruments.gauge(
    'census_age_seconds',
    'How long ago the documents of a lifecycle were counted; absent: no replica has counted them',
    ['lifecycle'],
    async () => {
      const found = await scrape()
      return own(found?.census ?? new Map()).map(
        ({ _id, at }): Row<'lifecycle'> => [
          { lifecycle: _id },
          Math.max(0, (found!.now.getTime() - at.getTime()) / 1_000),
        ],
      )
    },
    'max',
  )
  instruments.gauge(
    'database_up',
    '1: the census could be read for this scrape; 0: the database did not answer',
    [],
    async () => [[{}, (await scrape()) ? 1 : 0]],
  )
}

/** The documents of all phases that wait for the same. */
function waits({ _id: lifecycle, waits }: Census): Row<'lifecycle' | 'on'>[] {
  const sums = new Map<string, number>()
  for (const { on, documents } of waits) sums.set(on, (sums.get(on) ?? 0) + documents.n)
  return [...sums].map(([on, n]) => [{ lifecycle, on }, n])
}
