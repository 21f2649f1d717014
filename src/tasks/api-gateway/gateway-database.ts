import type { Db, Document } from 'mongodb'
import { durableOn, isServerError } from '../../database/index.js'
import { idKey } from '../../lock/index.js'
import { type Handler, Holder } from '../../phases/index.js'
import { idText } from '../kit/index.js'
import type { Collections } from './collections.js'
import { databaseNameFor } from './database-name.js'
import type { GatewayDatabase } from './documents.js'
import { isOrphan } from './gateways.js'

/** The first collection of a gateway's database; its only document names the owner. */
const FIRST_COLLECTION = 'Gateway'
const MARKER_ID = 'gateway'
const ALREADY_EXISTS = 48
const DIFFERS_BY_CASE_ONLY = 13297

const VALIDATOR = {
  $jsonSchema: {
    bsonType: 'object',
    required: ['_id', 'gatewayId', 'database', 'documentId'],
    properties: {
      _id: { enum: [MARKER_ID] },
      database: { bsonType: 'string', description: 'the Phaselock database that the gateway stands in' },
    },
  },
}

/** The owner of the database with this name. It has no owner as long as it contains at most our first collection, without a marker. */
type Ownership = 'ours' | 'unowned' | { readonly whose: string }

/** Actually creates the database, with a validator on its first collection, and marks it as this gateway's. */
export function databaseCreating(collections: Collections): Handler<'Created' | 'Deleting', GatewayDatabase> {
  return async (doc, step) => {
    await collections.ensureIndexes()
    if (await isOrphan(collections, doc)) return step.moveTo('Deleting')
    if (doc.gatewayId == null) return step.park('expected a gatewayId: whose database is it?')
    const holder = new Holder(collections.of('gatewayDatabase'), doc, step)
    const database = new OwnDatabase(collections.db, doc)
    const before = await database.ownership()
    if (typeof before === 'object') return step.park(`database ${database.name} exists and belongs to ${before.whose}`)
    await holder.assertHeld()
    if (!(await database.create())) return step.park(`database ${database.name} exists with different capitalization`)
    await holder.insert(database.marker(), { db: database.name, collection: FIRST_COLLECTION })
    const after = await database.ownership()
    if (after === 'unowned') throw holder.lost()
    if (after !== 'ours') return step.park(`database ${database.name} exists and belongs to ${after.whose}`)
    return step.moveTo('Created', { set: { database: database.name } })
  }
}

/** Actually drops the database, if it is this gateway's. */
export function databaseDeleting(collections: Collections): Handler<'Deleted', GatewayDatabase> {
  return async (doc, step) => {
    await collections.ensureIndexes()
    const database = new OwnDatabase(collections.db, doc)
    if (doc.gatewayId == null || typeof (await database.ownership()) === 'object') return step.moveTo('Deleted')
    // A drop can't be made conditional on the server: this is the last moment to check.
    await new Holder(collections.of('gatewayDatabase'), doc, step).assertHeld()
    await database.target.dropDatabase()
    return step.moveTo('Deleted')
  }
}

/** The MongoDB database of one gateway. Its marker keeps two gateways, even of two Phaselock databases, from sharing one. */
class OwnDatabase {
  readonly name: string
  readonly target: Db

  constructor(
    private readonly home: Db,
    private readonly doc: Readonly<GatewayDatabase>,
  ) {
    this.name = databaseNameFor(doc.gatewayId)
    this.target = home.client.db(this.name, { writeConcern: durableOn(home.client) })
  }

  marker(): Document {
    const { _id: documentId, gatewayId } = this.doc
    return { _id: MARKER_ID, gatewayId, database: this.home.databaseName, documentId }
  }

  async ownership(): Promise<Ownership> {
    const marker = await this.target.collection(FIRST_COLLECTION).findOne({ _id: MARKER_ID as never })
    if (marker) {
      const own = this.marker()
      const isOurs = marker['database'] === own['database'] && idKey(marker['documentId']) === idKey(own['documentId'])
      return isOurs ? 'ours' : { whose: describe(marker) }
    }
    const others = (await this.target.listCollections({}, { nameOnly: true }).toArray())
      .map((collection) => collection.name)
      .filter((name) => name !== FIRST_COLLECTION && !name.startsWith('system.'))
    return others.length === 0 ? 'unowned' : { whose: `somebody else: it has ${others.slice(0, 3).join(', ')}` }
  }

  /** Returns false if MongoDB has a database whose name differs only by case. */
  async create(): Promise<boolean> {
    try {
      await this.target.createCollection(FIRST_COLLECTION, { validator: VALIDATOR })
    } catch (error) {
      if (isServerError(error, DIFFERS_BY_CASE_ONLY)) return false
      if (!isServerError(error, ALREADY_EXISTS)) throw error
    }
    return true
  }
}

const describe = (marker: Document): string =>
  `the gateway ${idText(marker['gatewayId'])} of the database ${String(marker['database'])}`
