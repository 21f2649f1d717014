import type { Db } from 'mongodb'
import {
  askForKeys,
  askForSlots,
  forgetKeys,
  type ServerClock,
  type SlotGrant,
  type SlotRequest,
} from '../../../lock/index.js'

/** A request before it is sent: only then does it get its turn, and the time until which it is valid. */
type Request = Omit<SlotRequest, 'turn' | 'validUntil'>

interface Pending {
  readonly name: string
  readonly request: Request
  readonly resolve: (grant: SlotGrant | undefined) => void
  readonly reject: (error: unknown) => void
}

/** The requests of a replica for slots. Those for keys are sent together, because a claim asks for many. */
export class LimitRequests {
  private pending: Pending[] = []
  private turn = 0

  constructor(
    private readonly db: Db,
    private readonly identity: string,
    private readonly serverClock: Pick<ServerClock, 'validUntil' | 'hold'>,
  ) {}

  /** Asks a limit for slots, or gives some back. Undefined: there is no such limit, or no longer. */
  ask(name: string, request: Request): Promise<SlotGrant | undefined> {
    if (!request.key) return askForSlots(this.db, name, this.sentNow([request])(request))
    return new Promise((resolve, reject) => {
      if (this.pending.length === 0) setImmediate(() => void this.send())
      this.pending.push({ name, request, resolve, reject })
    })
  }

  /** Begins a turn for requests that are sent together: all get the same turn and validity, so that equal ones stay equal. */
  private sentNow(requests: readonly Request[]): (request: Request) => SlotRequest {
    const turn = this.nextTurn()
    const leaseMs = Math.min(...requests.map((one) => one.leaseMs))
    // While a forward step of the clock isn't confirmed, it ends no lease. Half of a lease: less than one has left that is renewed in time.
    const validUntil = this.serverClock.hold() ? new Date(0) : this.serverClock.validUntil(leaseMs / 2)
    return (request) => ({ ...request, turn, validUntil })
  }

  private nextTurn(): number {
    this.turn += 1
    return this.turn
  }

  private async send(): Promise<void> {
    const sent = this.pending
    this.pending = []
    // Each limit has one request at a time, so no limit is in both groups.
    const isBack = ({ request }: Pending) =>
      request.inUse + request.slots === 0 && request.starts === 0 && !request.key?.rate
    const [back, asked] = [sent.filter(isBack), sent.filter((one) => !isBack(one))]
    await Promise.all([this.giveBack(back), this.askFor(asked)])
  }

  /** Gives back all slots of some keys by removing their limits. If another replica needs one of those, sends the requests instead. */
  private async giveBack(back: readonly Pending[]): Promise<void> {
    if (back.length === 0) return
    const names = back.map(({ name }) => name)
    const areForgotten = await forgetKeys(this.db, names, this.identity, this.nextTurn()).catch(() => false)
    if (!areForgotten) return this.askFor(back)
    for (const { resolve } of back) resolve(undefined)
  }

  private async askFor(asked: readonly Pending[]): Promise<void> {
    if (asked.length === 0) return
    const sent = this.sentNow(asked.map(({ request }) => request))
    try {
      const requests = new Map(asked.map(({ name, request }) => [name, sent(request)]))
      const grants = await askForKeys(this.db, requests)
      for (const { name, resolve } of asked) resolve(grants.get(name))
    } catch (error) {
      for (const { reject } of asked) reject(error)
    }
  }
}
