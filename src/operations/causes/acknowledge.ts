import { shown, typed } from '../../options/index.js'
import { durationMs, formatMs } from '../../time/index.js'
import { countText } from '../inspect/count-text.js'
import { recorded } from '../system/audit.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import type { System } from '../system/system.js'
import { type Ack, MOST_ACKS, readAcks, removeAck, storeAck } from './acks.js'
import { causeNamed } from './causes.js'
import { begunAt, type CauseRow } from './row.js'

/** The longest time that a cause can be acknowledged for. */
const LONGEST_MS = 30 * 86_400_000
/** The longest time for a cause of more documents than are counted: it never comes back by doubling. */
const LONGEST_UNCOUNTED_MS = 86_400_000
const LONGEST_NOTE = 500

export interface AckRequest {
  readonly by: string
  /** A duration from now on, such as `4h`, or a time. At most 30 days. */
  readonly until: string | Date
  readonly note?: string | undefined
}

/**
 * Acknowledges a cause: others see who deals with it, and it needs nobody else until the time is over, or until there are twice as many documents.
 * @param id the row's id, or the cause that documents recorded
 * @example await ackCause(system, '3f9a0c1b22d4', { by: 'ana', until: '4h', note: 'the printer is on its way' })
 * @throws NotFound if there is no such row now; UsageError; Refused if another person has it
 */
export async function ackCause(
  system: System,
  id: string,
  { by, until, note }: AckRequest,
): Promise<{ readonly row: CauseRow; readonly ack: Ack }> {
  if (by.trim() === '') throw new UsageError('expected who acknowledges it (by), got an empty name')
  if (note !== undefined && note.length > LONGEST_NOTE)
    throw new UsageError(`expected a note of at most ${LONGEST_NOTE} characters, got ${note.length}`)
  const { row, now } = await causeNamed(system, id)
  const end = endOf(until, now)
  const ms = typeof end === 'number' ? end : end.getTime() - now.getTime()
  if (row.documents?.more && ms > LONGEST_UNCOUNTED_MS)
    throw new UsageError(
      `cause ${row.id} has ${countText(row.documents)} documents, and whether they double is not counted: acknowledge it for at most ${formatMs(LONGEST_UNCOUNTED_MS)}`,
    )
  const before = row.ack && { by: row.ack.by, note: row.ack.note, until: row.ack.until }
  const about = {
    action: 'causes ack',
    target: `cause ${row.id}: ${row.text.slice(0, 200)}`,
    lifecycle: row.lifecycle,
    before,
  }
  const { documents } = row
  const act = async (): Promise<Ack> => {
    const verdict = await storeAck(system.db, row.id, { by, note: note ?? null, end, documents, begun: begunAt(row) })
    if (verdict.kind === 'tooMany')
      throw new Refused(
        `${MOST_ACKS} causes are acknowledged already`,
        undefined,
        'end some first: phaselock causes unack',
      )
    if (verdict.kind === 'another') throw anotherHas(verdict.ack)
    return verdict.ack
  }
  const ack = await recorded(system, about, act, (ack) => ({
    outcome: 'done',
    after: { by: ack.by, note: ack.note, until: ack.until, documents: documents?.n ?? null },
  }))
  return { row, ack }
}

/**
 * Ends an acknowledgement, one's own or another's: the cause needs a person again.
 * @throws NotFound if it isn't acknowledged
 */
export async function unackCause(system: System, id: string): Promise<Ack> {
  const acks = await readAcks(system.db)
  const cause = acks.has(id) ? id : (await causeNamed(system, id)).row.id
  const ack = acks.get(cause)
  if (!ack) throw notAcknowledged(id)
  const about = {
    action: 'causes unack',
    target: `cause ${cause}`,
    before: { by: ack.by, note: ack.note, until: ack.until },
  }
  return recorded(system, about, async () => {
    const removed = await removeAck(system.db, cause)
    if (!removed) throw notAcknowledged(id)
    return removed
  })
}

function endOf(until: string | Date, now: Date): Date | number {
  if (typeof until === 'string') {
    const ms = durationMs(until, 'until')
    if (ms >= 1_000 && ms <= LONGEST_MS) return ms
    throw new UsageError(`expected a duration (until) from 1s to 30d, got ${until}; nothing was acknowledged`)
  }
  if (!(until instanceof Date) || Number.isNaN(until.getTime()))
    throw new UsageError(`expected a duration or a time (until), got ${shown(until)}; nothing was acknowledged`)
  const ms = until.getTime() - now.getTime()
  if (ms > 0 && ms <= LONGEST_MS) return until
  throw new UsageError(
    `expected a time (until) within the next 30 days, got ${until.toISOString()}; by the server's clock it is ${now.toISOString()}`,
  )
}

function anotherHas({ cause, by, note, until }: Ack): Refused {
  const said = note === null ? '' : `: ${note}`
  return new Refused(
    `${by} has cause ${cause} until ${until.toISOString()}${said}`,
    { reason: 'acknowledgedByAnother', id: cause, by },
    `to take it over: phaselock causes unack ${typed(cause)}`,
  )
}

const notAcknowledged = (id: string) =>
  new NotFound(`cause ${id} isn't acknowledged`, { reason: 'noCause', id }, 'see: phaselock causes')
