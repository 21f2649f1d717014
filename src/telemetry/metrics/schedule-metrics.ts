import type { Db } from 'mongodb'
import type { Registry } from 'prom-client'
import { COUNT_LIMIT } from '../../operations/index.js'
import type { Logger } from '../../phases/index.js'
import type { ScheduleCounts, ScheduleReports } from '../../schedules/index.js'
import { Instruments, oncePerScrape, type Row, withinScrape } from './instruments.js'

const LATE_SECONDS = [0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1_800, 3_600]
/** With more schedules than this, only the named ones have a label. */
const FEW = 50

/** Adds the schedules of one lifecycle; those that were added before are left out. */
export type AddReports = (reports: ScheduleReports) => void

/**
 * Metrics of this process's runs; a task that it doesn't know (a name in the database) gets no label.
 * @param lockFailed called with failed commands on the locks of runs
 */
export function runMetrics(registry: Registry, lockFailed: (action: 'extend' | 'unlock') => void): AddReports {
  const all = new Set<ScheduleReports>()
  const known = new Set<string>()
  const instruments = new Instruments(registry)
  /** A series that starts at 1 has no increase that an alert could see: a task that runs once a night starts at 0. */
  const begin = () => {
    for (const { lifecycle, taskNames, ends: outcomes } of all) {
      for (const task of taskNames.filter((name) => !known.has(`${lifecycle} ${name}`))) {
        known.add(`${lifecycle} ${task}`)
        retries.inc({ lifecycle, task }, 0)
        for (const [outcome, reasons] of Object.entries(outcomes)) {
          for (const why of reasons) ends.inc({ lifecycle, task, outcome, why }, 0)
        }
      }
    }
  }
  const labels = ['lifecycle', 'task'] as const
  const ends = instruments.counter(
    'schedule_runs_total',
    'Runs of schedules that are over, by outcome and why: Completed, Failed, Skipped, Missed',
    [...labels, 'outcome', 'why'],
    begin,
  )
  const help = 'Failed attempts of runs that are tried again'
  const retries = instruments.counter('schedule_retries_total', help, labels, begin)
  const late = 'How long after their due time runs started'
  const lateness = instruments.histogram('schedule_lateness_seconds', late, labels, LATE_SECONDS)
  return (reports) => {
    if (all.has(reports)) return
    all.add(reports)
    const { lifecycle } = reports
    const of = (task: string) => ({ lifecycle, task: reports.taskNames.includes(task) ? task : '' })
    reports.observe({
      started: ({ task, lateMs, trigger }) => {
        if (trigger !== 'backfill') lateness.observe(of(task), lateMs / 1_000)
      },
      retried: ({ task }) => retries.inc(of(task)),
      ended: ({ task, outcome, why }) => ends.inc({ ...of(task), outcome, why }),
      lockFailed: ({ action }) => lockFailed(action),
    })
  }
}

export interface ScheduleCountsOptions {
  readonly db: Db
  readonly logger?: Logger | undefined
  /** Schedules whose last success is shown. */
  readonly scheduleNames?: readonly string[] | undefined
}

/** Gauges of the schedules in the database, the same for all replicas. */
export function scheduleGauges(registry: Registry, options: ScheduleCountsOptions): AddReports {
  const all = new Set<ScheduleReports>()
  const { logger } = options
  /** A count that fails is left out of this scrape: `phaselock_database_up` shows why. */
  const ofEach = async <T>(ask: (reports: ScheduleReports) => Promise<T | undefined>): Promise<[string, T][]> => {
    const found = await Promise.all(
      [...all].map(async (one): Promise<[string, T][]> => {
        try {
          const answer = await withinScrape(ask(one))
          return answer === undefined ? [] : [[one.lifecycle, answer]]
        } catch (error) {
          logger?.warn(`metrics: ${one.lifecycle} could not be counted: ${String(error)}`)
          return []
        }
      }),
    )
    return found.flat()
  }
  const instruments = new Instruments(registry)
  const { db, scheduleNames = 'few' } = options
  const counts = oncePerScrape(() => ofEach((one) => one.counts(db, COUNT_LIMIT)))
  const ofAll = (value: (counts: ScheduleCounts) => number) => async () =>
    (await counts()).map(([lifecycle, found]): Row<'lifecycle'> => [{ lifecycle }, value(found)])
  instruments.gauge(
    'schedules',
    `Schedules by phase: Active, Paused, Finished, Broken (all replicas; counted up to ${COUNT_LIMIT})`,
    ['lifecycle', 'phase'],
    async () =>
      (await counts()).flatMap(([lifecycle, { phases }]) =>
        Object.entries(phases).map(([phase, count]): Row<'lifecycle' | 'phase'> => [{ lifecycle, phase }, count]),
      ),
  )
  instruments.gauge(
    'schedule_runs_running',
    `Runs of schedules that are under way (all replicas; counted up to ${COUNT_LIMIT})`,
    ['lifecycle'],
    ofAll(({ running }) => running),
  )
  instruments.gauge(
    'schedule_oldest_run_seconds',
    'How long the oldest run under way has taken so far, counted from its first try; 0 if there is none',
    ['lifecycle'],
    ofAll(({ oldestRunSeconds }) => oldestRunSeconds),
  )
  instruments.gauge(
    'schedule_last_success_timestamp_seconds',
    `When an active schedule that has run was last Completed; 0: in none of its latest runs. For named schedules, or else for all if there are at most ${FEW}`,
    ['lifecycle', 'schedule'],
    async () =>
      (await ofEach((one) => one.lastSuccesses(db, scheduleNames, FEW))).flatMap(([lifecycle, found]) =>
        found.map(
          ({ schedule, at }): Row<'lifecycle' | 'schedule'> => [{ lifecycle, schedule }, (at?.getTime() ?? 0) / 1_000],
        ),
      ),
  )
  return (reports) => void all.add(reports)
}
