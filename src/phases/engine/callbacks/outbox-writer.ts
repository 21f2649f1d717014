import { Batcher } from '../../../concurrency/index.js'
import {
  type Acknowledgement,
  acknowledgeOutboxes,
  type Delivery,
  type Leaving,
  type LetGo,
  letGoOutboxes,
  type Outboxes,
  type Refused,
} from '../../../lock/index.js'
import type { OutageLog } from '../../reporting/bounded-log.js'
import type { LifecycleEnvironment } from '../context/environment.js'

/** The longest time that delivered entries wait for the group before them to be taken out. */
const GATHERS_MOST_MS = 500

export interface OutboxWriterOptions {
  readonly env: Pick<LifecycleEnvironment, 'refusing' | 'broken'>
  readonly outage: OutageLog
}

/**
 * Writes the ends of deliveries; those that end together take one command. An end that can't be written is reported, and its outbox stays held until
 * its lease ends: then the entry is delivered again.
 */
export class OutboxWriter {
  /** One group at a time is taken out, the next one gathers in the meantime. */
  private readonly told = new Batcher<Acknowledgement, boolean>(
    async (all, { back }) => {
      // An owner may have locked one of its documents.
      const timer = setTimeout(back, GATHERS_MOST_MS)
      return this.acknowledgeAll(all).finally(() => clearTimeout(timer))
    },
    () => 1,
  )
  private readonly leaving = new Batcher<Leaving>((all) => letGoOutboxes(this.of, all))

  constructor(
    private readonly of: Outboxes,
    private readonly leaseMs: number,
    private readonly options: OutboxWriterOptions,
  ) {}

  /**
   * Takes delivered entries out of an outbox. The last ones of a document go together with those of others that end in this turn of the event loop,
   * or while the group before them is written. True if the outbox is still held.
   */
  async acknowledge(one: Acknowledgement): Promise<boolean> {
    if (one.goesOn) return this.acknowledgeAll([one])
    await this.told.ask(one)
    return false
  }

  /** Lets go of an outbox, together with others whose deliveries end in this turn of the event loop. */
  async letGo(one: Delivery, why: LetGo): Promise<void> {
    try {
      await this.leaving.ask({ ...one, why })
    } catch (error) {
      this.options.outage.failed(error)
    }
  }

  refused(all: readonly Refused[]): void {
    const { refusing, broken } = this.options.env
    for (const one of all) {
      refusing.add(one.id)
      broken.refused(one)
    }
  }

  private async acknowledgeAll(all: readonly Acknowledgement[]): Promise<boolean> {
    try {
      const { matched, refused } = await acknowledgeOutboxes(this.of, all, this.leaseMs)
      this.refused(refused)
      return matched === all.length
    } catch (error) {
      this.options.outage.failed(error)
      return false
    }
  }
}

/** Resolves in the turn after a piece of work has ended, or after a time: an owner may have locked one of its documents. */
export const within = (ms: number, work: Promise<unknown>) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms)
    void work.then(() => {
      clearTimeout(timer)
      setImmediate(resolve)
    })
  })

export const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve))
