import type { Collection, Db, Document } from 'mongodb'
import { once } from '../../concurrency/index.js'
import { protocolCollection } from '../../database/index.js'
import { DOMAIN_COLLECTIONS } from './documents.js'

export const BY_ID = { _id: 1 } as const

/** The documents of runtime domains in one database, and the index that keeps a host name from having two owners. */
export class DomainStore {
  readonly domains: Collection<Document>
  readonly routes: Collection<Document>

  constructor(readonly db: Db) {
    this.domains = protocolCollection(db, DOMAIN_COLLECTIONS.runtimeDomain)
    this.routes = protocolCollection(db, DOMAIN_COLLECTIONS.route)
  }

  /** Creates the index, once per process; a failure is thrown, and the next call tries again. */
  readonly ensureIndexes = once(() =>
    // A list that contains a string matches too: the index holds every name of a domain that is changing its name.
    this.domains.createIndex(
      { reservedHost: 1 },
      { unique: true, partialFilterExpression: { reservedHost: { $type: 'string' } } },
    ),
  )
}
