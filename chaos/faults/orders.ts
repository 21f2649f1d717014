/** Orders with parcels, beside the gateways: children, a limit for each tenant, ranks, turns, callbacks, questions, inserts that meet themselves. */
import { type Db, MongoClient } from 'mongodb'
import { connectDatabase } from '../../dist/database/index.js'
import { lifecycleOf, OwnerClient, Replica } from '../../dist/phases/index.js'
import { sleep, systemClock } from '../../dist/time/index.js'
import { oneOf, type Random } from './random.ts'
import { type Section, TimedRecord } from './timed-record.ts'
import { persistently, SILENT } from './timed-work.ts'

const PARCELS = ['0', '1', '2']
const TENANTS = ['a', 'b', 'c', 'd']
const RANKS = ['urgent', 'high', 'normal', 'low'] as const
const PACKING_MS = 100
/** A step that has been under way for so long proves nothing about who holds its slot now. */
const SURE_MS = 1_000
/** One parcel in so many asks. */
const ASKS_IN = 4
/** Of the sections of parcels: nothing else is named so. */
export const SECTION = 'tenant '
const TOLD = 'chaos.told'
const EVERY_MS = 1_000

interface Order {
  readonly _id: string
  readonly asks: boolean
  /** Of the newest of its inserts. */
  readonly edition: number
}
interface Parcel {
  readonly _id: string
  readonly tenant: string
  readonly priority: (typeof RANKS)[number]
  readonly asks: boolean
}

const orderDefinition = lifecycleOf<Order>().define({
  name: 'chaos-order',
  collection: 'ChaosOrder',
  phases: { Shipping: { next: ['Shipped'], entry: true }, Shipped: { rest: true } },
  callbacks: ['onMoved'],
})
const parcelDefinition = lifecycleOf<Parcel>().define({
  name: 'chaos-parcel',
  collection: 'ChaosParcel',
  child: true,
  phases: { Packing: { next: ['Packed'], entry: true }, Packed: { rest: true } },
  ...{ limitBy: 'tenant', each: 1, priorityBy: 'priority', fairBy: 'tenant', callbacks: ['onMoved'] },
})

export interface OrdersConfig {
  readonly name: string
  readonly uri: string
  readonly database: string
  readonly ledgerUri: string
  readonly lockTimeoutMs: number
}

/** What a replica's process does besides its gateways. It goes on until the process ends. */
export async function workOnOrders({ name, uri, database, ledgerUri, lockTimeoutMs }: OrdersConfig): Promise<void> {
  const ledger = new MongoClient(ledgerUri).db(database)
  const record = new TimedRecord(ledger)
  const told = ledger.collection(TOLD, { writeConcern: { w: 1, journal: true } })
  const onMoved = async ({ lifecycle, id, seq }: { lifecycle: string; id: unknown; seq: number }) =>
    void (await told.insertOne({ document: `${lifecycle}/${id}`, seq }))
  const orders = orderDefinition.handle(
    {
      Shipping: async (order, step) => {
        const parcel = (i: number) => ({
          tenant: TENANTS[(order._id.length + i) % TENANTS.length]!,
          ...{ priority: RANKS[i % RANKS.length]!, asks: order.asks && i === 0 },
        })
        await step.children(PARCELS.map((key, i) => parcelDefinition.child(key, parcel(i))))
        const ended = await step.childrenDone({ rule: 'allDone', recheck: '10s' })
        return ended.done ? step.moveTo('Shipped') : step.wait(ended.text, { on: 'parcel' })
      },
    },
    { onMoved },
  )
  const parcels = parcelDefinition.handle(
    {
      Packing: async (parcel, step) => {
        const startedMs = systemClock.monotonicMs()
        if (parcel.asks && !step.answer) return step.ask({ question: 'Pack it?', options: ['yes', 'no'] })
        const isHeld = () => !step.signal.aborted && systemClock.monotonicMs() - startedMs < SURE_MS
        await record.within(`${SECTION}${parcel.tenant}`, 0, isHeld, () => sleep(Math.random() * PACKING_MS))
        return step.moveTo('Packed')
      },
    },
    { onMoved },
  )
  const replica = await persistently(async () => {
    const { db } = await connectDatabase({ uri, database, lockTimeout: `${lockTimeoutMs}ms`, timeout: '1m' })
    const lifecycles = [orders, parcels]
    const starting = new Replica({ db, lifecycles, name: `${name}-orders`, logger: SILENT })
    await starting.start()
    return starting
  })
  process.once('SIGTERM', () => void replica.stop())
}

/** The orders, as their owner sees them. */
export class OrdersOwner {
  private readonly orders: OwnerClient<Order>
  private readonly parcels: OwnerClient<Parcel>
  /** By `_id`: the newest edition that an insert has acknowledged. */
  private readonly editions = new Map<string, number>()

  private readonly db: Db
  private readonly ledger: Db
  private readonly random: Random

  constructor(db: Db, ledger: Db, random: Random) {
    this.db = db
    this.ledger = ledger
    this.random = random
    this.orders = new OwnerClient(db, orderDefinition.model)
    this.parcels = new OwnerClient(db, parcelDefinition.model)
  }

  get count(): number {
    return this.editions.size
  }

  /** Inserts orders, old ones again, and answers what is asked, until it is over. */
  async work(busy: { readonly over: boolean }): Promise<void> {
    for (let edition = 1; !busy.over; edition += 1) {
      const known = [...this.editions.keys()]
      const again = this.random() < 0.3 ? oneOf(this.random, known) : undefined
      const _id = again ?? `order-${'x'.repeat(edition % TENANTS.length)}${edition}`
      const document = { _id, edition, asks: edition % ASKS_IN === 0 } as Order
      await trying(async () => {
        await this.orders.insert(document, { onDuplicate: 'runAgain' })
        this.editions.set(_id, Math.max(edition, this.editions.get(_id) ?? 0))
      })
      await this.answer()
      await sleep(EVERY_MS)
    }
  }

  /** Waits until nothing moves any more; what is wrong then. */
  async end(patienceMs: number, stopped: () => boolean): Promise<string[]> {
    let [least, sinceMs] = [Number.POSITIVE_INFINITY, systemClock.monotonicMs()]
    for (;;) {
      await this.answer()
      const open = await this.open()
      if (open.length < least) [least, sinceMs] = [open.length, systemClock.monotonicMs()]
      if (open.length === 0 || stopped() || systemClock.monotonicMs() - sinceMs > patienceMs)
        return [...open, ...(stopped() ? [] : await this.wrong())]
      await sleep(EVERY_MS)
    }
  }

  /** How often a parcel was packed. */
  async packed(): Promise<number> {
    return (await this.sections()).length
  }

  private async answer(): Promise<void> {
    await trying(async () => {
      for (const { _id } of await this.parcels.questions())
        await this.parcels.answer(_id, { option: 'yes', by: 'chaos' })
    })
  }

  private async open(): Promise<string[]> {
    const isOpen = {
      $or: [
        { phase: { $in: ['Shipping', 'Packing'] } },
        { 'progress.outbox.0': { $exists: true } },
        { 'progress.outbox.next': { $exists: true } },
      ],
    }
    const found = await Promise.all(
      [orderDefinition, parcelDefinition].map(({ model }) =>
        this.db.collection(model.collection).find(isOpen).toArray(),
      ),
    )
    return found.flat().map((document) => `not done: ${JSON.stringify(document).slice(0, 500)}`)
  }

  private async wrong(): Promise<string[]> {
    const wrong: string[] = []
    const told = new Set((await this.ledger.collection(TOLD).distinct('document')).map(String))
    const orders = new Map(
      (await this.db.collection<Order>('ChaosOrder').find().toArray()).map((one) => [one._id, one]),
    )
    const parcels = new Set((await this.db.collection<Parcel>('ChaosParcel').find().toArray()).map(({ _id }) => _id))
    for (const [id, edition] of this.editions) {
      const order = orders.get(id)
      if (!order) wrong.push(`order ${id} is gone`)
      else if (order.edition < edition) wrong.push(`order ${id}: edition ${order.edition}, inserted was ${edition}`)
      for (const key of PARCELS) {
        const parcel = `chaos-order/${id}/${key}`
        if (!parcels.has(parcel)) wrong.push(`parcel ${parcel} is missing`)
        else if (!told.has(`chaos-parcel/${parcel}`)) wrong.push(`nobody was told of parcel ${parcel}`)
      }
      if (!told.has(`chaos-order/${id}`)) wrong.push(`nobody was told of order ${id}`)
    }
    if (parcels.size !== orders.size * PARCELS.length)
      wrong.push(`${orders.size} orders have ${parcels.size} parcels, expected ${PARCELS.length} each`)
    return [...wrong, ...twoAtOnce(await this.sections())]
  }

  private async sections(): Promise<Section[]> {
    return (await new TimedRecord(this.ledger).allSections()).filter(({ lock }) => lock.startsWith(SECTION))
  }
}

/** Sections of one tenant that one entered while another was within: its limit has one slot. */
export function twoAtOnce(sections: readonly Section[]): string[] {
  return [...Map.groupBy(sections, ({ lock }) => lock)].flatMap(([lock, those]) => {
    const sorted = those.sort((a, b) => a.enteredAt.getTime() - b.enteredAt.getTime())
    return sorted.flatMap(({ enteredAt }, i) =>
      sorted.slice(0, i).some(({ leftAt }) => leftAt && leftAt > enteredAt)
        ? [`${lock}: two at once at ${enteredAt.toISOString()}`]
        : [],
    )
  })
}

/** The database is killed now and then. */
const trying = (act: () => Promise<void>): Promise<void> => act().catch(() => undefined)
