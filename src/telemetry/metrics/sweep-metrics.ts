import type { Db } from 'mongodb'
import type { Registry } from 'prom-client'
import { type LastSweep, lastSweep, operationsOpen } from '../../operations/index.js'
import { Instruments, oncePerScrape, type Row, withinScrape } from './instruments.js'

/** Gauges of the findings that one replica makes for all every five minutes, and of the last run of its duties. */
export function sweepGauges(registry: Registry, db: Db): void {
  const instruments = new Instruments(registry)
  // If a role can't read them, or the database is down, they are left out: phaselock_database_up reports that.
  const last = oncePerScrape(() => withinScrape(lastSweep(db)).catch((): LastSweep => ({ lifecycles: [], duties: [] })))
  const lifecycles = async () => (await last()).lifecycles
  instruments.gauge(
    'documents_waiting',
    "Documents that wait, by what for, as `on` of step.wait says, '-' where it doesn't (all replicas; as of the last sweep)",
    ['lifecycle', 'on'],
    async () =>
      (await lifecycles()).flatMap(({ lifecycle, waiting }) =>
        waiting.map(({ on, documents }): Row<'lifecycle' | 'on'> => [{ lifecycle, on }, documents]),
      ),
    'max',
  )
  instruments.gauge(
    'documents_overdue',
    'Documents that have been due for over a minute, by why: paused, limit, busy (all replicas; as of the last sweep)',
    ['lifecycle', 'phase', 'why'],
    async () =>
      (await lifecycles()).flatMap(({ lifecycle, overdue }) =>
        overdue.map(
          ({ phase, why, documents }): Row<'lifecycle' | 'phase' | 'why'> => [{ lifecycle, phase, why }, documents],
        ),
      ),
    'max',
  )
  instruments.gauge(
    'questions_open',
    'Documents that wait for an answer (all replicas; as of the last sweep)',
    ['lifecycle'],
    async () => (await lifecycles()).map(({ lifecycle, asking }): Row<'lifecycle'> => [{ lifecycle }, asking]),
    'max',
  )
  instruments.gauge(
    'operations_open',
    "Operations on many documents that haven't ended, by whether somebody works on them: running, waiting, parked",
    ['condition'],
    async () => {
      const open = await withinScrape(operationsOpen({ db })).catch(() => ({}))
      return Object.entries(open).map(([condition, count]): Row<'condition'> => [{ condition }, count])
    },
    'max',
  )
  const ofDuties = (
    name: string,
    help: string,
    value: (duty: LastSweep['duties'][number], now: Date) => number | null,
  ) =>
    instruments.gauge(
      name,
      help,
      ['duty'],
      async () => {
        const { duties, now } = await last()
        return duties.flatMap((duty): Row<'duty'>[] => {
          const found = now ? value(duty, now) : null
          return found === null ? [] : [[{ duty: duty.name }, found]]
        })
      },
      'max',
    )
  ofDuties('duty_age_seconds', 'How long ago a duty was last begun, by any replica', ({ begunAt }, now) =>
    Math.max(0, (now.getTime() - begunAt.getTime()) / 1_000),
  )
  ofDuties('duty_seconds', 'How long a duty took the last time', ({ tookMs }) =>
    tookMs === null ? null : tookMs / 1_000,
  )
  ofDuties('duty_failed', '1: a duty failed the last time', ({ error }) => Number(error !== null))
}
