import { type Document, Long } from 'mongodb'
import type { TcpProxy } from '../support/tcp-proxy.js'

const CURSOR = Long.fromNumber(4_711)

/**
 * Answers `$changeStream` on `phaselock.doorbell` in a server's place, which the embedded engine can't: the driver's own
 * change stream opens, waits and ends on it. It tells what is inserted and dropped through the same proxy. What a replica
 * set does beyond that (resuming, elections) is not in it.
 */
export class ChangeStreamStandIn {
  private changes: Document[] = []
  private waiting: (() => void)[] = []
  private token = 0
  private isOpen = false
  /** How often a stream was opened. */
  opened = 0
  /** What opening is answered with instead, if anything. */
  refusal: Document | undefined

  constructor(proxy: TcpProxy) {
    proxy.answerAll(({ name, body }) => this.answer(name, body))
  }

  private answer(name: string, body: Document): Document | Promise<Document> | undefined {
    const isDoorbell = body[name] === 'phaselock.doorbell'
    if (name === 'insert' && isDoorbell) {
      for (const fullDocument of body['documents']) this.changed({ operationType: 'insert', fullDocument })
    } else if (name === 'drop' && isDoorbell) {
      this.changed({ operationType: 'drop' })
      this.changed({ operationType: 'invalidate' })
    } else if (name === 'aggregate' && body['pipeline'][0]?.$changeStream) {
      return this.refusal ?? this.open(body)
    } else if (name === 'getMore' && Number(body['getMore']) === Number(CURSOR)) {
      return this.more(body)
    } else if (name === 'killCursors' && Number(body['cursors'][0]) === Number(CURSOR)) {
      this.isOpen = false
      this.wake()
      return { ok: 1, cursorsKilled: [CURSOR] }
    }
    return undefined
  }

  private open(body: Document): Document {
    this.opened += 1
    this.isOpen = true
    this.changes = []
    return {
      ok: 1,
      cursor: {
        id: CURSOR,
        ns: `${body['$db']}.phaselock.doorbell`,
        firstBatch: [],
        postBatchResumeToken: this.next(),
      },
    }
  }

  private async more(body: Document): Promise<Document> {
    if (this.changes.length === 0 && this.isOpen) {
      const waited = new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, body['maxTimeMS'])
        this.waiting.push(() => {
          clearTimeout(timer)
          resolve()
        })
      })
      await waited
    }
    if (!this.isOpen) return { ok: 0, code: 43, codeName: 'CursorNotFound', errmsg: 'the cursor was killed' }
    const nextBatch = this.changes.splice(0)
    const isOver = nextBatch.some(({ operationType }) => operationType === 'invalidate')
    const ns = `${body['$db']}.phaselock.doorbell`
    return {
      ok: 1,
      cursor: { id: isOver ? Long.ZERO : CURSOR, ns, nextBatch, postBatchResumeToken: this.next() },
    }
  }

  private changed(change: Document): void {
    this.changes.push({ _id: this.next(), ...change })
    this.wake()
  }

  private wake(): void {
    for (const wake of this.waiting.splice(0)) wake()
  }

  private next(): Document {
    this.token += 1
    return { _data: String(this.token) }
  }
}
