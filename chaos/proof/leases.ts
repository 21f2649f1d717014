import type { Db } from 'mongodb'
import { CLAIM_INDEX } from '../../dist/lock/index.js'
import { countPhases } from '../../dist/operations/index.js'
import { apiGatewayDefinitions } from '../../dist/tasks/index.js'
import type { DemoReplica } from './fleet.ts'
import { documentKey, type HeldDocument, type Ledger } from './ledger.ts'

export const isSameLease = (a: HeldDocument, b: HeldDocument) => a.document === b.document && a.fence === b.fence

/** The leases of replicas, so that the demo knows when to strike. */
export class Leases {
  private readonly db: Db
  private readonly ledger: Ledger

  constructor(db: Db, ledger: Ledger) {
    this.db = db
    this.ledger = ledger
  }

  /** The documents whose `lockedBy` names this replica, alive or not. */
  async heldBy({ name: replica }: DemoReplica): Promise<HeldDocument[]> {
    const lockedBy = { $gte: `${replica}~`, $lt: `${replica}\x7f` }
    const found = await Promise.all(
      apiGatewayDefinitions().all.map(async ({ name, model }) => {
        const held = this.db.collection(model.collection).find({ lockedBy }, { projection: { fence: 1 } })
        return (await held.toArray()).map(({ _id, fence }) => ({ document: documentKey(name, _id), fence }))
      }),
    )
    return found.flat()
  }

  /** Those whose step under this lease has not begun. */
  async notBegun(held: readonly HeldDocument[]): Promise<HeldDocument[]> {
    const begins = await this.ledger.begins(held.map(({ document }) => document))
    return held.filter((lease) => !begins.some((step) => isSameLease(step, lease)))
  }

  /** Those that have since begun at least this many steps. */
  async goneOn(held: readonly HeldDocument[], steps = 1): Promise<HeldDocument[]> {
    const begins = await this.ledger.begins(held.map(({ document }) => document))
    return held.filter(({ document, fence }) => {
      const later = begins.filter((step) => step.document === document && step.fence > fence)
      return later.length >= steps
    })
  }

  /** The number of gateways that no replica has had a place for yet. */
  async unclaimed(): Promise<number> {
    const { collection } = apiGatewayDefinitions().gateway.model
    return await this.db
      .collection(collection)
      .countDocuments({ phase: 'Creating', lockedAt: null }, { hint: CLAIM_INDEX })
  }

  /** The number of documents of any lifecycle that are in a working phase and so still have work to do. */
  async working(): Promise<number> {
    const models = apiGatewayDefinitions().all.map(({ model }) => model)
    const counts = await countPhases({ db: this.db, models }, { fresh: true })
    return counts.reduce((sum, { kind, documents }) => sum + (kind === 'working' ? documents.n : 0), 0)
  }
}
