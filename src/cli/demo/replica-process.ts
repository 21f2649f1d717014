/** One replica of the demo, as a process of its own: started by replica-link.ts, told what to do over the IPC channel. */
import { MongoClient } from 'mongodb'
import { connectDatabase, renewalClient } from '../../database/index.js'
import { Replica } from '../../phases/index.js'
import { apiGatewayLifecycles } from '../../tasks/index.js'
import { type Duration, systemClock } from '../../time/index.js'
import { brokenProtocol, clockAhead } from './broken-protocols.js'
import { faultyHandlers } from './faulty-handlers.js'
import { observedHandlers, type Pace } from './observed-handlers.js'
import { ReplicaLife } from './replica-life.js'
import type { LeaseLostNews, ReplicaConfig, ToReplica } from './replica-messages.js'
import { roundStepNumber } from './round-order.js'
import { StepLedger } from './step-ledger.js'

let siblings: readonly number[] = []
/** After a SIGTERM the steps under way go on for so long, within the grace. */
const LAST_STEPS_MS = 1_000
const hurry = new AbortController()
let pace: Pace = { leastMs: 0, mostMs: 0, slowMs: 0 }

const life = new ReplicaLife<LeaseLostNews>()
process.on('message', (message: ToReplica) => {
  if (message.kind === 'siblings') siblings = message.pids
  else if (message.kind === 'pace') pace = { ...pace, ...message.pace }
  else run(message.config).catch(life.failed)
})
process.on('disconnect', endWithTheDemo)

/** The demo has died: nobody is left behind. */
function endWithTheDemo(): void {
  for (const pid of siblings) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended already.
    }
  }
  process.exit(1)
}

async function run(config: ReplicaConfig): Promise<void> {
  const { uri, database, lockTimeoutMs } = config
  pace = config.pace
  const connection = await connectDatabase({ uri, database, lockTimeoutMs, timeoutMs: 10_000 })
  const renewals = await renewalClient(connection, lockTimeoutMs)
  const { faults } = config
  // A killed database forgets what no journal has.
  const ledgerClient = await (faults
    ? new MongoClient(faults.ledgerUri, { journal: true })
    : new MongoClient(uri)
  ).connect()
  const ledger = new StepLedger(ledgerClient.db(database), config.name)
  const clock = config.clockAheadMs > 0 ? clockAhead(systemClock, config.clockAheadMs) : systemClock
  const lifecycles = apiGatewayLifecycles({
    db: connection.db,
    lockTimeout: `${lockTimeoutMs}ms` satisfies Duration,
    concurrency: config.concurrency,
    ...(faults ? { stepTimeout: `${faults.stepTimeoutMs}ms` satisfies Duration } : {}),
    wrap: faults
      ? faultyHandlers(
          observedHandlers(ledger, () => pace, hurry.signal, roundStepNumber),
          { lockTimeoutMs, ...faults },
        )
      : observedHandlers(ledger, () => pace, hurry.signal),
  })
  const replica = new Replica({
    db: connection.db,
    lifecycles: lifecycles.all,
    name: config.name,
    renewalDb: renewals.db(database),
    graceMs: config.graceMs,
    logger: life.logger,
    clock,
    protocol: config.broken ? brokenProtocol(config.broken, clock) : undefined,
    observer: {
      leaseLost: ({ how, lifecycle, id }) => life.tell({ kind: 'leaseLost', how, lifecycle, id: String(id) }),
    },
  })
  const close = () => Promise.all([connection.close(), ledgerClient.close()])
  await life.live(replica, close, () => setTimeout(() => hurry.abort(), LAST_STEPS_MS))
}
