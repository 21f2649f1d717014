import type { Collection, Db, Document } from 'mongodb'
import { once } from '../../concurrency/index.js'
import { protocolCollection } from '../../database/index.js'
import { DomainStore } from '../runtime-domain/domain-store.js'
import { COLLECTIONS, INSTANCE_COLLECTION } from './documents.js'

/** The index for finding children. Queries name it: with a choice of two the planner may use the worse. */
export const BY_GATEWAY = { gatewayId: 1 } as const
export const BY_ID = { _id: 1 } as const

const KINDS = { ...COLLECTIONS, instance: INSTANCE_COLLECTION } as const

type Kind = keyof typeof KINDS

/** Kinds whose documents belong to a gateway. */
export type ChildKind = Exclude<Kind, 'gateway'>

export const collectionOf = (kind: Kind): string => KINDS[kind]

/** The collections of one database, with durable writes and reads from the primary, and the indexes of this task kind. */
export class Collections {
  private readonly children: readonly ChildKind[]

  /** @param withInstances true if gateways have instances: without regions there is no such collection */
  constructor(
    readonly db: Db,
    withInstances = false,
  ) {
    this.children = (Object.keys(KINDS) as Kind[]).filter(
      (kind) => kind !== 'gateway' && (withInstances || kind !== 'instance'),
    ) as ChildKind[]
  }

  of(kind: Kind): Collection<Document> {
    return protocolCollection(this.db, KINDS[kind])
  }

  /** Creates the indexes, once per process; a failure is thrown, and the next call tries again. */
  readonly ensureIndexes = once(async () => {
    for (const kind of this.children) await this.of(kind).createIndex(BY_GATEWAY)
    await new DomainStore(this.db).ensureIndexes()
  })
}
