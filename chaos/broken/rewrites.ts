import type { Document } from 'mongodb'

/** The protections that `--break` removes, each with what is missing without it. */
export const BREAKABLE = {
  'unlock-by-id': 'a holder writes by _id alone, without its token',
  'client-clock':
    "replicas use their own clocks, not the server's, and one of them runs ahead by twice the lock timeout",
  'no-renew': 'leases are not renewed, though the replicas believe so',
  'no-token': "tokens don't tell one holder from another",
} as const

export type Breakable = keyof typeof BREAKABLE

/** Replaces a command between a replica and its database; undefined: it goes on as it is. */
export type Rewritten =
  /** Goes on changed; `reply` changes the server's answer to it. */
  | { readonly command: Document; readonly reply?: (reply: Document) => Document }
  /** Never reaches the server: this is its answer. */
  | { readonly answer: Document }
export type Rewrite = (command: Document) => Rewritten | undefined

/**
 * The commands that replicas would send without one protection of the lock protocol, made from those that they do send: only to show
 * that each of them is needed.
 * @param now the replica's own clock
 */
export function withoutProtection(what: Breakable, now: () => Date): Rewrite {
  switch (what) {
    case 'unlock-by-id':
      return (command) => whereUpdates(command, (filter) => onLockedBy(filter, ifToken(undefined)))
    case 'client-clock':
      return (command) => (isToOthers(command) ? undefined : { command: atTime(command, now()) })
    case 'no-renew':
      return answerRenewal
    case 'no-token':
      return withAnyToken
  }
}

/** A message to other replicas. It keeps the server's time: they would take another time for a step of the server's clock. */
const isToOthers = ({ update, findAndModify }: Document): boolean =>
  String(update ?? findAndModify ?? '').startsWith('phaselock.')

/** Puts a time in place of `$$NOW` in an expression, a filter or a command. */
export const atTime = <Part>(part: Part, now: Date): Part =>
  replaced(part, (value) => (value === '$$NOW' ? now : value)) as Part

function replaced(value: unknown, change: (leaf: unknown) => unknown): unknown {
  if (Array.isArray(value)) return value.map((one) => replaced(one, change))
  if (!isPlain(value)) return change(value)
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, replaced(one, change)]))
}

/** A document; dates, ObjectIds and the like are values. */
const isPlain = (value: unknown): value is Document =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

// ----- leases

/** Answers a renewal as if it had matched every document that it names. */
function answerRenewal({ updates }: Document): Rewritten | undefined {
  if (!Array.isArray(updates) || !updates.every(isRenewal)) return undefined
  const n = updates.flatMap(({ q }) => idsIn(q)).length
  return { answer: { n, nModified: n, ok: 1 } }
}

/** No other update sets `lockedAt` to the later of its value and now. */
const isRenewal = ({ u }: Document): boolean => Array.isArray(u) && u[0]?.$set?.lockedAt?.$max?.[0] === '$lockedAt'

/** The `_id`s that a renewal names, for one claim or for several. */
const idsIn = ({ _id, $or = [] }: Document): unknown[] =>
  _id === undefined ? $or.flatMap(idsIn) : isPlain(_id) && '$in' in _id ? _id['$in'] : [_id]

// ----- tokens

/** A token, `replica~start#claim.step`, or the beginning that all tokens of a claim share. */
const TOKEN = /~[^~#]*#\d+\.\d*$/

const tokenIn = (condition: unknown): string | undefined => {
  const one = isPlain(condition) ? (condition['$gte'] ?? condition['$in']?.[0]) : condition
  return typeof one === 'string' && TOKEN.test(one) ? one : undefined
}

/** Replaces the condition on one token; that on all tokens of a claim, which renewals have, stays. */
const ifToken = (instead: unknown) => (condition: unknown) =>
  isPlain(condition) || tokenIn(condition) === undefined ? condition : instead

const HELD = { $type: 'string' }

/** Asks only for a holder where the command asks for a token. A read of what a claim has won gets every document as if its own token were in it. */
function withAnyToken(command: Document): Rewritten | undefined {
  const { find, filter } = command
  const anyToken = (condition: unknown) => (tokenIn(condition) === undefined ? condition : HELD)
  if (find === undefined) return whereUpdates(command, (q) => onLockedBy(q, anyToken))
  const asked = tokenIn(filter?.lockedBy)
  if (asked === undefined) return undefined
  const own = (document: Document) => (document['lockedBy'] === undefined ? document : { ...document, lockedBy: asked })
  return {
    command: { ...command, filter: onLockedBy(filter, anyToken) },
    reply: ({ cursor, ...reply }) => ({
      ...(cursor && { cursor: { ...cursor, firstBatch: cursor.firstBatch.map(own) } }),
      ...reply,
    }),
  }
}

/** An update with other filters. */
function whereUpdates(command: Document, change: (filter: Document) => Document): Rewritten | undefined {
  if (!Array.isArray(command['updates'])) return undefined
  return { command: { ...command, updates: command['updates'].map((one) => ({ ...one, q: change(one.q) })) } }
}

/** A filter with another condition on `lockedBy`; undefined: none. */
export function onLockedBy(filter: Document, change: (condition: unknown) => unknown): Document {
  const fields = Object.entries(filter).map(([name, condition]) => {
    if (name === '$or' || name === '$and') return [name, condition.map((one: Document) => onLockedBy(one, change))]
    return [name, name === 'lockedBy' ? change(condition) : condition]
  })
  return Object.fromEntries(fields.filter(([, condition]) => condition !== undefined))
}
