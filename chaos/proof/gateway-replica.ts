import { MongoClient } from 'mongodb'
import { connectWith, renewalClient } from '../../dist/database/index.js'
import type { ReplicaOptions } from '../../dist/phases/index.js'
import type { WrapHandler } from '../../dist/tasks/index.js'
import { apiGatewayLifecycles } from '../../dist/tasks/index.js'
import type { Duration } from '../../dist/time/index.js'
import { observedHandlers, type Pace, StepLedger, type StepNumber } from './observed-handlers.ts'
import { ReplicaLife } from './replica-life.ts'
import { stepNumber } from './step-order.ts'

/** The time that running steps get after a SIGTERM, within the grace. */
const LAST_STEPS_MS = 1_000
/** The time limit of a connection: far more than it takes, because a busy machine needs time for it. */
const CONNECTED_WITHIN = '1m'

/** A replica process's configuration, sent once over its channel: a connection string may hold a password. */
export interface ReplicaConfig {
  readonly name: string
  readonly uri: string
  readonly database: string
  readonly lockTimeoutMs: number
  readonly concurrency: number
  readonly graceMs: number
  readonly pace: Pace
}

/** The differences of the replicas of another run. */
export interface Variation {
  readonly numberOf?: StepNumber
  /** Wraps the wrapper that writes the ledger. */
  readonly wrap?: (observe: WrapHandler) => WrapHandler
  readonly stepTimeoutMs?: number
  /** The number of gateways, databases and domains that are worked on at the same time, each on all replicas together. */
  readonly maxActive?: number
  /** The URI of a connection to the ledger that only the end of the database itself disturbs. */
  readonly ledgerUri?: string
}

/** The program of a replica of gateways whose steps are in the ledger: fleet.ts directs it over the IPC channel. */
export function gatewayReplica<Config extends ReplicaConfig>(vary: (config: Config) => Variation = () => ({})): void {
  const hurry = new AbortController()
  let pace: Pace = { leastMs: 0, mostMs: 0, slowMs: 0 }

  const run = async (config: Config, life: ReplicaLife<Config>) => {
    const { uri, database, lockTimeoutMs, name, concurrency, graceMs } = config
    pace = config.pace
    const { numberOf = stepNumber, wrap = (observe) => observe, stepTimeoutMs, maxActive, ledgerUri } = vary(config)
    const connection = await connectWith({
      uri,
      database,
      lockTimeout: `${lockTimeoutMs}ms`,
      timeout: CONNECTED_WITHIN,
    })
    const renewals = await renewalClient(connection, `${lockTimeoutMs}ms`)
    // A killed database loses everything that is not in a journal.
    const ledgerClient = await new MongoClient(ledgerUri ?? uri, ledgerUri ? { journal: true } : {}).connect()
    const ledger = new StepLedger(ledgerClient.db(database), name)
    const lifecycles = apiGatewayLifecycles({
      db: connection.db,
      lockTimeout: `${lockTimeoutMs}ms` satisfies Duration,
      concurrency,
      ...(maxActive !== undefined && { maxActive }),
      ...(stepTimeoutMs && { stepTimeout: `${stepTimeoutMs}ms` satisfies Duration }),
      wrap: wrap(observedHandlers(ledger, () => pace, hurry.signal, numberOf)),
    })
    const options: ReplicaOptions = {
      db: connection.db,
      lifecycles: lifecycles.all,
      name,
      renewalDb: renewals.db(database),
      grace: `${graceMs}ms`,
      observer: { leaseLost: ({ how }) => life.tell({ kind: 'leaseLost', how }) },
    }
    const close = () => Promise.all([connection.close(), ledgerClient.close()])
    await life.live(options, close, () => setTimeout(() => hurry.abort(), LAST_STEPS_MS))
  }
  new ReplicaLife<Config>(run, (order) => {
    if (order.kind === 'pace') pace = { ...pace, ...order.pace }
  })
}
