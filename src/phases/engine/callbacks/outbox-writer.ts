import {
  type Delivery,
  type Leaving,
  type LetGo,
  letGoOutboxes,
  type Outboxes,
  type Refused,
  type Told,
  toldOutboxes,
} from '../../../lock/index.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import type { OutageLog } from '../report/outage-log.js'

/** What has been told waits so long for the group before it to be taken out. */
const GATHERS_MOST_MS = 500

export interface OutboxWriterOptions {
  readonly env: Pick<LifecycleEnvironment, 'refusing' | 'broken'>
  readonly outage: OutageLog
}

/**
 * Writes how deliveries end, those that end together in one command. One that can't be written is reported, and left to the end of its lease: it is told again.
 */
export class OutboxWriter {
  private readonly told: Told[] = []
  /** The last group that is being taken out, and the one that gathers meanwhile. */
  private takingOut: Promise<unknown> = Promise.resolve()
  private gathering: Promise<unknown> | undefined
  private readonly leaving: Leaving[] = []
  private lettingGo: Promise<void> | undefined

  constructor(
    private readonly of: Outboxes,
    private readonly leaseMs: number,
    private readonly options: OutboxWriterOptions,
  ) {}

  /** The last of a document together with those of others that end in this turn of the event loop. Whether its outbox goes on to be held. */
  async takeOut(one: Told): Promise<boolean> {
    if (one.goesOn) return this.takenOut([one])
    this.told.push(one)
    this.gathering ??= within(GATHERS_MOST_MS, this.takingOut).then(() => {
      this.gathering = undefined
      return this.takenOut(this.told.splice(0))
    })
    this.takingOut = this.gathering
    await this.gathering
    return false
  }

  /** Together with those of others that end in this turn of the event loop. */
  async letGo(one: Delivery, why: LetGo): Promise<void> {
    this.leaving.push({ ...one, why })
    this.lettingGo ??= nextTurn().then(() => {
      this.lettingGo = undefined
      return letGoOutboxes(this.of, this.leaving.splice(0))
    })
    try {
      await this.lettingGo
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

  private async takenOut(all: readonly Told[]): Promise<boolean> {
    try {
      const { matched, refused } = await toldOutboxes(this.of, all, this.leaseMs)
      this.refused(refused)
      return matched === all.length
    } catch (error) {
      this.options.outage.failed(error)
      return false
    }
  }
}

/** Resolves in the turn after a work has ended, or after a time: an owner may have locked one of its documents. */
export const within = (ms: number, work: Promise<unknown>) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms)
    void work.then(() => {
      clearTimeout(timer)
      setImmediate(resolve)
    })
  })

export const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve))
