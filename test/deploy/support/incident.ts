import { afterEach, expect } from '@jest/globals'
import type { Db } from 'mongodb'
import { type Replica, type ReplicaOptions, type RunnableLifecycle, silentLogger } from '../../../src/index.js'
import { type ReplicaMetrics, replicaMetrics } from '../../../src/telemetry/index.js'
import { takeCensuses } from '../../support/census.js'
import { replicaOf } from '../../support/thing.js'
import { Scrapes } from './prometheus.js'

/** A replica whose metrics Prometheus scrapes. */
export interface Watched {
  readonly replica: Replica
  readonly metrics: ReplicaMetrics
  /** One scrape, or as many in a row as Prometheus makes in this time, with the same answer. */
  scrape(forS?: number): Promise<void>
  /** Its alert isn't firing yet. */
  quiet(alert: string): Promise<void>
  /** It is firing now, and says about what. */
  fires(alert: string, labels?: object): Promise<void>
}

export const EVERY_S = 15

export async function expectQuiet(scrapes: Scrapes, alert: string): Promise<void> {
  expect({ alert, firing: await scrapes.firing(alert) }).toEqual({ alert, firing: [] })
}

export async function expectFiring(scrapes: Scrapes, alert: string, labels: object = {}): Promise<void> {
  const firing = await scrapes.firing(alert)
  expect({ alert, firing }).toMatchObject({ firing: [{ labels: { namespace: 'a', ...labels } }] })
}

/** Makes replicas that end with their test. To be called before `useDatabase`, so that they end before it. */
export function useWatched(): (db: Db, lifecycle: RunnableLifecycle, more?: Partial<ReplicaOptions>) => Watched {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  return (db, lifecycle, more = {}) => {
    const metrics = replicaMetrics({ db, lifecycles: [lifecycle], processMetrics: false })
    const options = { doorbell: 'off', grace: '100ms', logger: silentLogger, ...more } as const
    const replica = replicaOf(db, lifecycle, { ...options, observer: metrics.observer })
    metrics.watch(replica)
    replicas.push(replica)
    const scrapes = new Scrapes()
    /** A replica takes a census each few seconds while metrics are scraped; here more time passes between two scrapes. */
    async function takeCensus() {
      if (replica.status().notReady.length > 0) return
      await takeCensuses(db, replica)
    }
    return {
      replica,
      metrics,
      async scrape(forS = EVERY_S) {
        await takeCensus()
        scrapes.add(await metrics.registry.metrics(), forS / EVERY_S)
      },
      quiet: (alert) => expectQuiet(scrapes, alert),
      fires: (alert, labels) => expectFiring(scrapes, alert, labels),
    }
  }
}
