import { type ClaimResult, idKey, isPlain, type Refused } from '../../lock/index.js'
import type { BoundedLog } from './bounded-log.js'
import type { BrokenDocument, BrokenReason, ReplicaObserver } from './observer.js'

const MOST_REMEMBERED = 10_000
const FOUND_LIMIT = 300

/**
 * Reports documents that aren't as they should be: each once, the log within its bound. A field that is left alone is logged once for its kind,
 * because it may be so in all of an owner's documents.
 */
export class BrokenReports {
  private reported = new Set<string>()
  private readonly kindsLogged = new Set<string>()

  constructor(
    private readonly lifecycle: string,
    private readonly progress: string,
    private readonly observer: Required<ReplicaObserver>,
    private readonly lines: BoundedLog,
  ) {}

  claimed({ broken, odd, refused }: Pick<ClaimResult, 'broken' | 'odd' | 'refused'>): void {
    const fieldsOf = new Map(odd.map(({ id, fields }) => [idKey(id), fields]))
    for (const id of broken) {
      // Because its `progress` or `phase` is the owner's, or its `_id` can't be matched.
      const why = fieldsOf.get(idKey(id))?.find(({ field }) => field === 'phase' || field === '_id')
      const found = why ? why.found : `a ${this.progress} whose shape is not Phaselock's`
      this.tell({ id, reason: why ? (why.field as BrokenReason) : 'progress', found, fate: 'putAside' })
      fieldsOf.delete(idKey(id))
    }
    for (const { id } of odd) {
      for (const { field, found, isMended } of fieldsOf.get(idKey(id)) ?? []) {
        this.tell({ id, reason: field as BrokenReason, found, fate: isMended ? 'mended' : 'leftAlone' })
      }
    }
    for (const one of refused) this.refused(one)
  }

  /** Reports a document with a `lockedAt` that no claim finds. */
  repaired(id: unknown, found: string): void {
    this.tell({ id, reason: 'lockedAt', found, fate: 'mended' })
  }

  refused({ id, error }: Refused): void {
    const reason = CODES[Number((error as { code?: unknown }).code)] ?? 'refused'
    this.tell({ id, reason, found: error.message.slice(0, FOUND_LIMIT), fate: 'skipped' })
  }

  unreadable(id: unknown, error: Error): void {
    this.tell({ id, reason: 'unreadable', found: error.message.slice(0, FOUND_LIMIT), fate: 'putAside' })
  }

  /** Reports documents whose phase isn't a string: they are never claimed. */
  phase(found: string): void {
    this.tell({ id: null, reason: 'phase', found, fate: 'leftAlone' })
  }

  private tell(about: Omit<BrokenDocument, 'lifecycle'>): void {
    const event: BrokenDocument = { lifecycle: this.lifecycle, ...about }
    const key = `${event.reason} ${event.fate} ${event.id === null ? event.found : idKey(event.id)}`
    if (this.reported.has(key)) return
    if (this.reported.size >= MOST_REMEMBERED) this.reported = new Set()
    this.reported.add(key)
    this.observer.broken(event)
    this.log(event)
  }

  private log(event: BrokenDocument): void {
    if (event.fate === 'leftAlone') {
      const kind = `${event.reason} ${event.found}`
      if (this.kindsLogged.has(kind)) return
      this.kindsLogged.add(kind)
    }
    this.lines.warn({ kind: KINDS[event.fate], name: event.reason }, lineOf(event), { ...event })
  }
}

const KINDS: Record<BrokenDocument['fate'], string> = {
  mended: 'documents mended',
  leftAlone: 'documents with fields left alone',
  putAside: 'documents put aside',
  skipped: 'documents that refuse writes',
}

function lineOf({ lifecycle, id, reason, found, fate }: BrokenDocument): string {
  if (reason === 'phase' && fate === 'leftAlone') {
    return `${lifecycle}: documents whose phase is ${found} are left alone; expected a string`
  }
  const document = `${lifecycle} ${shown(id)}`
  switch (fate) {
    case 'mended':
      return `${document}: its ${reason} was ${found}; mended`
    case 'leftAlone':
      return `${document}: its ${reason} is ${found}; it stays and ${reason === 'priority' ? 'is claimed by its age' : 'counts as missing'} (others like it are not logged)`
    case 'putAside':
      if (reason === 'unreadable')
        return `${document} can't be read by the driver: ${found}; it is parked, and the others go on`
      return `${document} has ${found} (${reason}): it was put aside (lockedAt 9999-12-31) and not changed otherwise`
    case 'skipped':
      return `${document} refuses writes (${reason}): ${found}; it is left alone for a while, and the others go on`
  }
}

const CODES: Readonly<Record<number, BrokenReason>> = {
  10334: 'tooLarge',
  17419: 'tooLarge',
  17280: 'tooLarge',
  121: 'validator',
  11000: 'uniqueIndex',
  11001: 'uniqueIndex',
  40400: 'progress',
}

function shown(id: unknown): string {
  return (isPlain(id) ? JSON.stringify(id) : String(id)).slice(0, 200)
}
