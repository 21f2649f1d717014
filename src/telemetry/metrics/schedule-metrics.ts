import type { Db } from 'mongodb'
import type { Counter, Histogram, Registry } from 'prom-client'
import { COUNT_LIMIT } from '../../operations/index.js'
import type { Logger } from '../../phases/index.js'
import type { ScheduleCounts, ScheduleReports } from '../../schedules/index.js'
import { Instruments, type Row } from './instruments.js'
import { oncePerScrape, withinScrape } from './once-per-scrape.js'

const LATE_SECONDS = [0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1_800, 3_600]
/** Where there are more schedules than this, only those that were named have a label. */
const FEW = 50

/** Metrics of this process's runs; a task that it doesn't know (a name in the database) gets no label. */
export class RunMetrics {
  private readonly all: ScheduleReports[] = []
  private readonly known = new Set<string>()
  private readonly ends: Counter<'lifecycle' | 'task' | 'outcome' | 'why'>
  private readonly retries: Counter<'lifecycle' | 'task'>
  private readonly lateness: Histogram<'lifecycle' | 'task'>

  constructor(
    registry: Registry,
    /** Called with failed commands on the locks of runs. */
    private readonly lockFailed: (action: 'extend' | 'unlock') => void,
  ) {
    const instruments = new Instruments(registry)
    const begin = () => this.begin()
    this.ends = instruments.counter(
      'schedule_runs_total',
      'Runs of schedules that are over, by outcome and why: Completed, Failed, Skipped, Missed',
      ['lifecycle', 'task', 'outcome', 'why'],
      begin,
    )
    const help = 'Tries of runs that failed and are made again'
    this.retries = instruments.counter('schedule_retries_total', help, ['lifecycle', 'task'], begin)
    this.lateness = instruments.histogram(
      'schedule_lateness_seconds',
      'How long after their due time runs began',
      ['lifecycle', 'task'],
      LATE_SECONDS,
    )
  }

  add(reports: ScheduleReports): void {
    if (this.all.includes(reports)) return
    this.all.push(reports)
    const { lifecycle } = reports
    const labels = (task: string) => ({ lifecycle, task: reports.taskNames.includes(task) ? task : '' })
    reports.observe({
      started: ({ task, lateMs }) => this.lateness.observe(labels(task), lateMs / 1_000),
      retried: ({ task }) => this.retries.inc(labels(task)),
      ended: ({ task, outcome, why }) => this.ends.inc({ ...labels(task), outcome, why }),
      lockFailed: ({ action }) => this.lockFailed(action),
    })
  }

  /** A series that starts at 1 has no increase that an alert could see: what runs once a night starts at 0. */
  private begin(): void {
    for (const { lifecycle, taskNames, ends } of this.all) {
      for (const task of taskNames.filter((name) => !this.known.has(`${lifecycle} ${name}`))) {
        this.known.add(`${lifecycle} ${task}`)
        this.retries.inc({ lifecycle, task }, 0)
        for (const [outcome, reasons] of Object.entries(ends)) {
          for (const why of reasons) this.ends.inc({ lifecycle, task, outcome, why }, 0)
        }
      }
    }
  }
}

export interface ScheduleCountsOptions {
  readonly db: Db
  readonly logger?: Logger | undefined
  /** Schedules whose last success is shown. */
  readonly scheduleNames?: readonly string[] | undefined
}

/** What is in the database, the same for all replicas. */
export class ScheduleGauges {
  private readonly all: ScheduleReports[] = []

  constructor(
    registry: Registry,
    private readonly options: ScheduleCountsOptions,
  ) {
    const instruments = new Instruments(registry)
    const { db, scheduleNames = 'few' } = options
    const counts = oncePerScrape(() => this.ofEach((one) => one.counts(db, COUNT_LIMIT)))
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
      'How long the first of the runs that are under way has been, from its first try on; 0 when none is',
      ['lifecycle'],
      ofAll(({ oldestRunSeconds }) => oldestRunSeconds),
    )
    instruments.gauge(
      'schedule_last_success_timestamp_seconds',
      `When an active schedule that has run was last Completed; 0: in none of its latest runs. Of named ones, else of all where there are at most ${FEW}`,
      ['lifecycle', 'schedule'],
      async () =>
        (await this.ofEach((one) => one.lastSuccesses(db, scheduleNames, FEW))).flatMap(([lifecycle, found]) =>
          found.map(
            ({ schedule, at }): Row<'lifecycle' | 'schedule'> => [
              { lifecycle, schedule },
              (at?.getTime() ?? 0) / 1_000,
            ],
          ),
        ),
    )
  }

  add(reports: ScheduleReports): void {
    if (!this.all.includes(reports)) this.all.push(reports)
  }

  /** What can't be counted is left out of this scrape: `phaselock_database_up` tells why. */
  private async ofEach<T>(ask: (reports: ScheduleReports) => Promise<T | undefined>): Promise<[string, T][]> {
    const found = await Promise.all(
      this.all.map(async (one): Promise<[string, T][]> => {
        try {
          const answer = await withinScrape(ask(one))
          return answer === undefined ? [] : [[one.lifecycle, answer]]
        } catch (error) {
          this.options.logger?.warn(`metrics: ${one.lifecycle} could not be counted: ${String(error)}`)
          return []
        }
      }),
    )
    return found.flat()
  }
}
