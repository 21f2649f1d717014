/** A replica of the demo, which tells it over the IPC channel where to work: a connection string may hold a password. */
import { connectWith } from '../../database/index.js'
import { operationLifecycle } from '../../operations/index.js'
import { Replica, silentLogger } from '../../phases/index.js'
import type { Said } from '../processes/replica-process.js'
import { tenantsOf } from './tenants.js'

export interface Workplace {
  readonly name: string
  readonly uri: string
  readonly database: string
  readonly storageUrl: string
}

const tell = (said: Said) => process.send?.(said, () => undefined)

async function work({ name, uri, database, storageUrl }: Workplace): Promise<void> {
  const { db } = await connectWith({ uri, database, lockTimeout: '4s', timeout: '1m' })
  const lifecycles = [tenantsOf(db, storageUrl), operationLifecycle({ db })]
  const replica = new Replica({ db, name, lifecycles, logger: silentLogger })
  await replica.start()
  tell({ kind: 'ready', identity: replica.identity })
}

process.once('message', (workplace: Workplace) => {
  work(workplace).catch(({ name, message }) => tell({ kind: 'failed', name, message, exitCode: 1 }))
})
// Ctrl-C reaches every process of a terminal: the demo ends its replicas. They don't outlive it, however it ends.
process.on('SIGINT', () => undefined)
process.on('disconnect', () => process.exit(1))
