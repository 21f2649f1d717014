import type { Collection, Document, IndexSpecification } from 'mongodb'
import { buildIndex, type IndexBuild, isServerError } from '../../database/index.js'
import { type ClaimOrder, orderIndexes } from '../candidates/order.js'
import { childIndex } from '../look/children.js'
import { outboxIndex } from '../outbox/outbox.js'
import { CLAIM_INDEX, STATE_INDEX, type Terms } from '../terms/terms.js'

/** The two indexes that the protocol needs. Any others are for a lifecycle's options: {@link moreIndexes}. */
const LOCK_INDEXES = [CLAIM_INDEX, STATE_INDEX]
/** Kinds of index that don't hold every document, or not in the order in which the protocol reads. */
const OTHER_KINDS = ['hidden', 'sparse', 'partialFilterExpression', 'collation']

const NO_SUCH_COLLECTION = 26
const INDEX_OPTIONS_CONFLICT = 85
const INDEX_KEY_SPECS_CONFLICT = 86

/** The index by which people list the documents with a value of a field, in pages in the order of `_id`. */
export const searchIndex = (field: string): Document => ({ [field]: 1, _id: 1 })

/** The additional indexes of a lifecycle: for an order of its own, for documents that may be children, for callbacks, and for lists. */
export const moreIndexes = (
  settings: ClaimOrder &
    Pick<Terms, 'progress' | 'callbacks'> & {
      readonly child?: boolean | undefined
      readonly search?: readonly string[] | undefined
    },
): Document[] => [
  ...orderIndexes(settings),
  ...(settings.child ? [childIndex(settings.progress)] : []),
  ...(settings.callbacks ? [outboxIndex(settings.progress)] : []),
  ...(settings.search ?? []).map(searchIndex),
]

/**
 * Creates those that are missing, and `more` of them. One with the same key but of another kind (hidden, partial) is left unchanged: the check of
 * query plans reports it and says what to do.
 */
export async function ensureLockIndexes(
  collection: Collection,
  build?: IndexBuild,
  more: readonly Document[] = [],
): Promise<void> {
  for (const key of [...LOCK_INDEXES, ...more]) {
    try {
      await buildIndex(collection, key as IndexSpecification, build)
    } catch (error) {
      if (!isServerError(error, INDEX_OPTIONS_CONFLICT, INDEX_KEY_SPECS_CONFLICT)) throw error
    }
  }
}

/** An index that the protocol needs and can't use. */
export interface UnusableIndex {
  readonly key: Document
  /** `index {"phase":1,"lockedAt":1} of Site`. */
  readonly what: string
  /** "it is missing", "it is of another kind (sparse)". */
  readonly problem: string
  /** The command to run in mongosh to mend it. */
  readonly command: string
}

/**
 * Finds out which of the indexes can't be used; changes nothing. A collection that isn't there has no indexes.
 * @throws MongoServerError 13 without the right to list the indexes
 */
export async function unusableLockIndexes(
  collection: Collection,
  more: readonly Document[] = [],
): Promise<UnusableIndex[]> {
  const indexes = (await indexesOf(collection)) ?? []
  const collated = defaultCollation(collection.collectionName, indexes)
  if (collated) return [collated]
  return [...LOCK_INDEXES, ...more].flatMap((key) => {
    const index = indexes.find(isOn(key))
    // Some servers name the simple collation, the one that we need; others leave it out.
    const crippled = OTHER_KINDS.filter((how) => index?.[how] && index[how].locale !== 'simple')
    if (index && crippled.length === 0) return []
    const name = JSON.stringify(key)
    const of = `db.getCollection('${collection.collectionName}')`
    return {
      key,
      what: `index ${name} of ${collection.collectionName}`,
      problem: index ? `it is of another kind (${crippled.join(', ')})` : 'it is missing',
      command: `${index ? `${of}.dropIndex('${index['name']}'); ` : ''}${of}.createIndex(${name})`,
    }
  })
}

/**
 * A default collation, which no index can mend: queries and new indexes inherit it, and an index with the simple one serves no query.
 * The index of `_id` always has the collection's own.
 */
function defaultCollation(name: string, indexes: readonly Document[]): UnusableIndex | undefined {
  const { locale, strength } = indexes.find(isOn({ _id: 1 }))?.['collation'] ?? {}
  if (locale === undefined || locale === 'simple') return undefined
  const fresh = `${name}.new`
  return {
    key: CLAIM_INDEX,
    what: `collection ${name}`,
    problem: `it has a default collation (${locale}, strength ${strength}), by which phases and states of different spelling may be equal; it can't be changed`,
    command: `db.getCollection('${name}').aggregate([{ $out: '${fresh}' }]); db.getCollection('${fresh}').renameCollection('${name}', true) while nobody writes to it, then phaselock check --repair`,
  }
}

export const hasIndex = async (collection: Collection, key: Document): Promise<boolean> =>
  ((await indexesOf(collection)) ?? []).some(isOn(key))

const isOn = (key: Document) => (index: Document) => JSON.stringify(index['key']) === JSON.stringify(key)

export const collectionExists = async (collection: Pick<Collection, 'indexes'>): Promise<boolean> =>
  (await indexesOf(collection)) !== undefined

/** `listIndexes` needs a right on this collection only, `listCollections` one on the whole database. */
async function indexesOf(collection: Pick<Collection, 'indexes'>): Promise<Document[] | undefined> {
  try {
    return await collection.indexes()
  } catch (error) {
    if (isServerError(error, NO_SUCH_COLLECTION)) return undefined
    throw error
  }
}
