import { MissingIndex } from '../../lock/index.js'
import { didYouMean } from '../../options/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { Refused, UsageError } from '../system/errors.js'
import { inForceIn, modelOf, type System } from '../system/system.js'
import { type Found, foundIn } from './find.js'
import { cursorText, listDigest, type Position, positionFrom } from './list-cursor.js'
import { LISTED_CONDITIONS, type ListFilters, planOf } from './list-plan.js'
import { ListReader, MOST_READ } from './list-reader.js'
import { TROUBLES } from './standing.js'

export interface ListOptions extends ListFilters {
  /** The lifecycle. Default: all. */
  readonly lifecycle?: string | undefined
  /** At most this many. Default 50. */
  readonly limit?: number | undefined
  /** The `next` of the page before. Default: from the beginning. */
  readonly after?: string | undefined
}

/** What a list is, for its cursors. */
const LISTED_BY = [
  ...(['lifecycle', 'phase', 'state', ...TROUBLES, 'on', 'condition', 'cause'] as const),
  ...(['key', 'olderThan', 'filter', 'order'] as const),
] as const

/** A page of a list. */
export interface Listed {
  readonly documents: readonly Found[]
  /** True if there may be others. */
  readonly more: boolean
  /** The cursor of the next page; undefined: there is none. */
  readonly next: string | undefined
  /** If it has fewer documents than there may be, or leaves some out: the reason, in words. */
  readonly note: string | undefined
}

/**
 * Documents and their conditions, by lifecycle and in the order of an index; never more than 10,000 are read of a range of it. Documents that don't
 * change while a list is read are each on one page.
 * @example await listDocuments(system, { parked: true }) // { documents: [{ lifecycle: 'order', document, condition, ... }], more: false, ... }
 * @throws UsageError for an unknown lifecycle, a phase that neither it nor any document has, a filter that no index serves, or the cursor of another
 *   list; Refused while an index is missing
 */
export async function listDocuments(
  system: System,
  { limit = 50, after, ...options }: ListOptions = {},
): Promise<Listed> {
  const { lifecycle, phase } = options
  const models = lifecycle === undefined ? system.models : [modelOf(system, lifecycle)]
  checkFilters(options)
  const digest = listDigest(LISTED_BY.map((name) => [name, options[name] ?? null]))
  const from = after === undefined ? undefined : positionFrom(digest, after)
  const meant = from ? models.slice(models.indexOf(modelOf(system, from.lifecycle))) : models
  const page = await read(system, meant, options, { from, limit })
  const known = [...new Set(models.flatMap((model) => [...model.phases.keys()]))]
  if (page.documents.length === 0 && from === undefined && phase !== undefined && !known.includes(phase)) {
    throw new UsageError(
      `expected a phase of ${models.map(({ name }) => name).join(', ')} (${known.join(', ')}), got '${phase}'${didYouMean(phase, known)}`,
      { reason: 'unknownPhase', got: phase, known },
    )
  }
  const next = page.next && cursorText(digest, page.next)
  return { documents: page.documents, more: next !== undefined, next, note: page.note }
}

interface Page {
  readonly documents: readonly Found[]
  readonly next?: Position | undefined
  readonly note?: string | undefined
}

async function read(
  { db }: System,
  models: readonly LifecycleModel[],
  options: ListFilters,
  { from, limit }: { readonly from: Position | undefined; readonly limit: number },
): Promise<Page> {
  const inForce = await inForceIn(db, models)
  const documents: Found[] = []
  const notes: string[] = []
  for (const [i, model] of models.entries()) {
    const { terms } = inForce(model)
    const start: Omit<Position, 'lifecycle'> = i === 0 && from ? from : {}
    const plan = await planOf(db, model, terms, options)
    const reader = new ListReader(db.collection(model.collection), plan)
    const page = await reader.page(start, limit - documents.length).catch(unlessMissing)
    documents.push(...page.rows.map(foundIn(model, inForce(model))))
    if (page.isCut) notes.push(`at most ${MOST_READ} documents of ${model.name} were looked at`)
    if (page.isCrowded)
      notes.push(
        `of more than ${MOST_READ} documents of ${model.name} with the same place in the index only the first are listed`,
      )
    if (start.key === undefined && (await reader.leavesOut().catch(unlessMissing)))
      notes.push(
        `left out: documents of ${model.name} whose phase or times are arrays, or dates out of range (phaselock check)`,
      )
    if (page.next) return { documents, next: { lifecycle: model.name, ...page.next }, note: textOf(notes) }
  }
  return { documents, note: textOf(notes) }
}

const textOf = (notes: readonly string[]): string | undefined => (notes.length > 0 ? notes.join('; ') : undefined)

function unlessMissing(error: unknown): never {
  if (!(error instanceof MissingIndex)) throw error
  throw new Refused(error.message)
}

function checkFilters({ cause, condition }: ListOptions): void {
  if (condition !== undefined && !LISTED_CONDITIONS.includes(condition))
    throw new UsageError(
      `condition (--condition): expected one of ${LISTED_CONDITIONS.join(', ')}, got '${condition}'${didYouMean(condition, LISTED_CONDITIONS)}`,
      undefined,
      'broken documents: phaselock check',
    )
  if (cause !== undefined && !/^[\da-f]{12}$/.test(cause))
    throw new UsageError(`cause (--cause): expected 12 hex digits, got '${cause}'`, undefined, 'see: phaselock causes')
}
