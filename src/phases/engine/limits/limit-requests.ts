import type { Db } from 'mongodb'
import { ANSWERED, type Batch, Batcher } from '../../../concurrency/index.js'
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
type Asked = Batch<{ readonly name: string; readonly request: Request }, SlotGrant | undefined>['asked']

/** The requests of a replica for slots. Those for keys are sent together, because a claim asks for many. */
export class LimitRequests {
  private readonly keys = new Batcher((_values, { asked }: { asked: Asked }) => this.send(asked))
  private turn = 0

  constructor(
    private readonly db: Db,
    private readonly identity: string,
    private readonly serverClock: Pick<ServerClock, 'validUntil' | 'hold'>,
  ) {}

  /** Asks a limit for slots, or gives some back. Undefined: there is no such limit, or no longer. */
  ask(name: string, request: Request): Promise<SlotGrant | undefined> {
    if (request.key) return this.keys.ask({ name, request })
    return askForSlots(this.db, name, this.sentNow([request])(request))
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

  private async send(all: Asked): Promise<typeof ANSWERED> {
    // Each limit has one request at a time, so no limit is in both groups.
    const isBack = ({ value: { request } }: Asked[number]) =>
      request.inUse + request.slots === 0 && request.starts === 0 && !request.key?.rate
    await Promise.all([this.giveBack(all.filter(isBack)), this.askFor(all.filter((one) => !isBack(one)))])
    return ANSWERED
  }

  /** Gives back all slots of some keys by removing their limits. If another replica needs one of those, sends the requests instead. */
  private async giveBack(back: Asked): Promise<void> {
    if (back.length === 0) return
    const names = back.map(({ value }) => value.name)
    const areForgotten = await forgetKeys(this.db, names, this.identity, this.nextTurn()).catch(() => false)
    if (!areForgotten) return this.askFor(back)
    for (const { resolve } of back) resolve(undefined)
  }

  private async askFor(asked: Asked): Promise<void> {
    if (asked.length === 0) return
    const sent = this.sentNow(asked.map(({ value }) => value.request))
    try {
      const requests = new Map(asked.map(({ value: { name, request } }) => [name, sent(request)]))
      const grants = await askForKeys(this.db, requests)
      for (const { value, resolve } of asked) resolve(grants.get(value.name))
    } catch (error) {
      for (const { reject } of asked) reject(error)
    }
  }
}
