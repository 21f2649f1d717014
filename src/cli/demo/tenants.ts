import { type Db, ObjectId } from 'mongodb'
import { lifecycleOf } from '../../phases/index.js'
import { sleep } from '../../time/index.js'

interface Tenant {
  _id: string
}

/** The lifecycle of the demo: a tenant gets a bucket in the storage, a certificate and pods, each by a handler that takes a moment. */
export const tenant = lifecycleOf<Tenant>().define({
  name: 'tenant',
  collection: 'Tenant',
  lockTimeout: '4s',
  concurrency: 4,
  maxAttempts: 3,
  backOff: { firstError: '300ms' },
  phases: {
    Storage: { next: ['Certificate'] },
    Certificate: { next: ['Pods'] },
    Pods: { next: ['Ready'] },
    Ready: { rest: true },
  },
})

/** The phases that have a handler, in their order. */
export const STEPS = ['Storage', 'Certificate', 'Pods'] as const
const STEP_MS = 300

/** A run of a handler, in the demo's own ledger, which Phaselock never reads. Times are the server's. */
export interface Run {
  readonly _id: ObjectId
  readonly tenant: string
  readonly phase: string
  readonly beganAt: Date
  /** Absent: its replica died. */
  readonly endedAt?: Date
}

export const runsIn = (db: Db) => db.collection<Run>('demo.runs')

/** @param storageUrl the address of the storage, which may refuse connections */
export const tenantsOf = (db: Db, storageUrl: string) => {
  const runs = runsIn(db)
  const run = async (tenant: string, phase: string, work: () => Promise<unknown> = () => sleep(STEP_MS)) => {
    const _id = new ObjectId()
    await runs.updateOne({ _id }, [{ $set: { tenant, phase, beganAt: '$$NOW' } }], { upsert: true })
    try {
      await work()
    } finally {
      await runs.updateOne({ _id }, [{ $set: { endedAt: '$$NOW' } }])
    }
  }
  return tenant.handle({
    async Storage({ _id }, step) {
      await run(_id, 'Storage', async () => {
        await sleep(STEP_MS)
        await fetch(`${storageUrl}/${_id}`, { method: 'PUT', signal: step.signal })
      })
      return step.moveTo('Certificate')
    },
    async Certificate({ _id }, step) {
      await run(_id, 'Certificate')
      return step.moveTo('Pods')
    },
    async Pods({ _id }, step) {
      await run(_id, 'Pods')
      return step.moveTo('Ready')
    },
  })
}
