import type { Db } from 'mongodb'
import type { Registry } from 'prom-client'
import type { Logger } from '../../phases/index.js'
import { Instruments, oncePerScrape, type Row, withinScrape } from './instruments.js'

/** The name and the labels of a metric that a package adds. */
export interface OwnMetric {
  /** The name without the prefix `phaselock_`; that of a counter ends in `_total`. */
  readonly name: string
  /** One line for the exposition. */
  readonly help: string
  /** The names of its labels. */
  readonly labels?: readonly string[]
}

/** A value with its labels. */
export type OwnRow = readonly [labels: Readonly<Record<string, string>>, value: number]

/**
 * Metrics that a lifecycle of a package brings besides those of its steps. `replicaMetrics` finds them in the lifecycle's property `metrics`.
 *
 * @example
 * ```ts
 * const metrics: OwnMetrics = {
 *   counters: [{ name: 'mails_sent_total', help: 'Mails sent by this replica' }],
 *   counted: () => ({ mails_sent_total: [[{}, sent]] }),
 *   gauges: [{ name: 'mails_waiting', help: 'Mails that wait (all replicas)' }],
 *   count: async (db) => ({ mails_waiting: [[{}, await db.collection('Mail').countDocuments({ sentAt: null })]] }),
 * }
 * ```
 */
export interface OwnMetrics {
  /** Numbers of this process. */
  readonly counters: readonly OwnMetric[]
  /** Returns the values of the counters by name, each since this process started. */
  counted(): Readonly<Record<string, readonly OwnRow[]>>
  /** Numbers found in the database, the same for all replicas. */
  readonly gauges: readonly OwnMetric[]
  /** Returns the values of the gauges by name. Called once for each scrape; without an answer within 7 s, or with an error, they are left out. */
  count(db: Db): Promise<Readonly<Record<string, readonly OwnRow[]>>>
}

/** Adds the counters of a package's lifecycle. */
export function ownCounters(registry: Registry, own: OwnMetrics): void {
  const instruments = new Instruments(registry)
  for (const { name, help, labels = [] } of own.counters) {
    const counter = instruments.counter(name, help, labels, () => {
      counter.reset()
      for (const [given, value] of own.counted()[name] ?? []) counter.inc({ ...given }, value)
    })
  }
}

/** Adds the gauges of a package's lifecycle. */
export function ownGauges(registry: Registry, db: Db, logger: Logger | undefined, own: OwnMetrics): void {
  const instruments = new Instruments(registry)
  const counts = oncePerScrape(async (): Promise<Readonly<Record<string, readonly OwnRow[]>>> => {
    try {
      return await withinScrape(own.count(db))
    } catch (error) {
      logger?.warn(`metrics: ${own.gauges.map(({ name }) => name).join(', ')}: ${String(error)}`)
      return {}
    }
  })
  for (const { name, help, labels = [] } of own.gauges)
    instruments.gauge(
      name,
      help,
      labels,
      async (): Promise<readonly Row<string>[]> => (await counts())[name] ?? [],
      'max',
    )
}
