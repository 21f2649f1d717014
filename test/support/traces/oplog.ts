import type { Document, MongoClient, Timestamp } from 'mongodb'

/** One write of one document, as the oplog has it. */
export interface Change {
  readonly id: string
  /** Undefined: it was inserted. */
  readonly before: Document | undefined
  /** Undefined: it was removed. */
  readonly after: Document | undefined
  /** By the primary's clock. */
  readonly wall: Date
}

/** As a rolling oplog: all that a majority has of a collection, in its order. Only for what was empty at first, and for no transactions. */
export async function oplogOf(client: MongoClient, namespace: string): Promise<Change[]> {
  const oplog = client.db('local').collection<Document & { ts: Timestamp }>('oplog.rs')
  const entries = await oplog
    .find({ ns: namespace, op: { $in: ['i', 'u', 'd'] } }, { readConcern: { level: 'majority' } })
    .sort({ $natural: 1 })
    .toArray()
  const now = new Map<string, Document>()
  return entries.map(({ op, o, o2, wall }) => {
    const id = String((o2 ?? o)._id)
    const before = now.get(id)
    const after = op === 'd' ? undefined : op === 'i' ? o : updated(before ?? {}, o)
    if (after) now.set(id, after)
    else now.delete(id)
    return { id, before, after, wall }
  })
}

/** What an entry makes of a document: a difference, operators (as older servers write them), or another document. */
function updated(before: Document, o: Document): Document {
  if (o['diff']) return withDiff(before, o['diff']) as Document
  if (!o['$set'] && !o['$unset']) return o
  const after = structuredClone(before)
  for (const [path, value] of Object.entries(o['$set'] ?? {})) setAt(after, path.split('.'), value)
  for (const path of Object.keys(o['$unset'] ?? {})) setAt(after, path.split('.'), undefined)
  return after
}

/** `d`, `u`, `i`: fields removed, changed, inserted; `s<field>`: a difference of that field; of an array (`a`) the same by index, `l` is its length. */
function withDiff(before: unknown, diff: Document): unknown {
  if (diff['a'] === true) {
    const after: unknown[] = Array.isArray(before) ? [...before] : []
    if (typeof diff['l'] === 'number') after.length = diff['l']
    for (const [name, value] of Object.entries(diff)) {
      const index = Number(name.slice(1))
      if (/^u\d+$/.test(name)) after[index] = value
      if (/^s\d+$/.test(name)) after[index] = withDiff(after[index], value)
    }
    return after
  }
  const after: Document = { ...(before as Document) }
  for (const field of Object.keys(diff['d'] ?? {})) delete after[field]
  Object.assign(after, diff['u'], diff['i'])
  for (const [name, value] of Object.entries(diff)) {
    if (name.length > 1 && name.startsWith('s')) after[name.slice(1)] = withDiff(after[name.slice(1)], value)
  }
  return after
}

function setAt(document: Document, [first, ...rest]: string[], value: unknown): void {
  if (rest.length > 0) {
    document[first!] ??= {}
    setAt(document[first!], rest, value)
  } else if (value === undefined) delete document[first!]
  else document[first!] = value
}
