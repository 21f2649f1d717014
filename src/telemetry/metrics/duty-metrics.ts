import type { Db } from 'mongodb'
import type { Registry } from 'prom-client'
import { type Duty, readDuties } from '../../lock/index.js'
import { operationsOpen } from '../../operations/index.js'
import { SWEEP } from '../../phases/index.js'
import { Instruments, oncePerScrape, type Row, withinScrape } from './instruments.js'

/** A duty that only an older version does is no longer done once none of its replicas runs. */
const isOurs = ({ name }: Duty): boolean => !name.startsWith(SWEEP)

/** Gauges of the last run of each duty, and of operations on many documents. */
export function dutyGauges(registry: Registry, db: Db): void {
  const instruments = new Instruments(registry)
  // If a role can't read them, or the database is down, they are left out: phaselock_database_up reports that.
  const last = oncePerScrape(() => withinScrape(readDuties(db)).catch(() => ({ duties: [], now: undefined })))
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
  const ofDuties = (name: string, help: string, value: (duty: Duty, now: Date) => number | null) =>
    instruments.gauge(
      name,
      help,
      ['duty'],
      async () => {
        const { duties, now } = await last()
        return duties.filter(isOurs).flatMap((duty): Row<'duty'>[] => {
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
