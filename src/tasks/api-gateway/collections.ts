import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { COLLECTIONS } from './documents.js'

/** The index by which children are looked up. Queries name it: with two that could serve, the planner may choose the worse. */
export const BY_GATEWAY = { gatewayId: 1 } as const
export const BY_ID = { _id: 1 } as const

type Kind = keyof typeof COLLECTIONS

/** Kinds whose documents belong to a gateway. */
export type ChildKind = Exclude<Kind, 'gateway'>

const CHILD_KINDS = Object.keys(COLLECTIONS).filter((kind) => kind !== 'gateway') as ChildKind[]

/** The collections of one database, durable writes and reads from the primary, with the indexes of this task kind. */
export class Collections {
  private ready: Promise<void> | undefined

  constructor(readonly db: Db) {}

  of(kind: Kind): Collection<Document> {
    return protocolCollection(this.db, COLLECTIONS[kind])
  }

  /** Creates the indexes, once for each process; a failure is thrown, and the next call tries again. */
  ensureIndexes(): Promise<void> {
    this.ready ??= this.createIndexes().catch((error) => {
      this.ready = undefined
      throw error
    })
    return this.ready
  }

  private async createIndexes(): Promise<void> {
    for (const kind of CHILD_KINDS) await this.of(kind).createIndex(BY_GATEWAY)
    await this.of('runtimeDomain').createIndex(
      { reservedHost: 1 },
      { unique: true, partialFilterExpression: { reservedHost: { $type: 'string' } } },
    )
  }
}
