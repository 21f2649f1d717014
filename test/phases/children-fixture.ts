import { afterEach } from '@jest/globals'
import type { Document } from 'mongodb'
import {
  type ChildrenDone,
  type Handler,
  lifecycleOf,
  Replica,
  type ReplicaOptions,
  type RunnableLifecycle,
  silentLogger,
} from '../../src/index.js'
import type { ChildrenDoneOptions } from '../../src/phases/index.js'
import { backDate } from '../../src/testing/index.js'
import { useDatabase } from '../support/database.js'

export interface Order {
  _id: string
  parcels: string[]
  state?: 'Deleted'
  ended?: string
}
export interface Parcel {
  _id: string
  weight: number
  fails?: boolean
  effects?: number
  state?: 'Deleted'
}

export const parcelSpec = {
  name: 'parcel',
  collection: 'Parcel',
  child: true,
  phases: {
    Packing: { next: ['Packed', 'Broken'] },
    Packed: { rest: true },
    Broken: { rest: true, failed: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, failed: true },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
} as const
export const parcel = lifecycleOf<Parcel>().define(parcelSpec)

/** Children without a rule for any state. */
export const labelSpec = {
  name: 'label',
  collection: 'Label',
  child: true,
  phases: { Printing: { next: ['Printed'] }, Printed: { rest: true } },
} as const
export const label = lifecycleOf<Parcel>().define(labelSpec)

export const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  phases: { Shipping: { next: ['Shipped', 'Stuck'] }, Shipped: { rest: true }, Stuck: { rest: true } },
})

type Packing = Handler<'Packed' | 'Broken', Parcel>
export const packed: Packing = async (doc, step) => step.moveTo(doc.fails ? 'Broken' : 'Packed')
export const parcelsWith = (Packing: Packing = packed) =>
  parcel.handle({ Packing, Deleting: async (_doc, step) => step.moveTo('Deleted') })

/** Orders that insert a parcel for each of their names (one with `!` fails) and wait for them by a rule. */
export function ordersWith(options: ChildrenDoneOptions = { rule: 'allSucceeded' }) {
  const seen: ChildrenDone[] = []
  const lifecycle = order.handle({
    async Shipping(doc, step) {
      await step.children(doc.parcels.map((key) => parcel.child(key, { weight: 1, fails: key.endsWith('!') })))
      const ended = await step.childrenDone(options)
      seen.push(ended)
      if (!ended.done) return step.wait(ended.text)
      return step.moveTo(ended.met ? 'Shipped' : 'Stuck', { set: { ended: ended.text } })
    },
  })
  return { seen, lifecycle }
}

/** A database, and replicas on it. To be called in a `describe`. */
export function useChildren() {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const database = useDatabase()
  const orders = () => database.db.collection<Document & { _id: string }>('Order')
  const parcels = () => database.db.collection<Document & { _id: string }>('Parcel')
  const stored = async (_id = 'o') => (await orders().findOne({ _id })) as Record<string, any>
  const insert = (names: string[], _id = 'o') => orders().insertOne({ _id, phase: 'Shipping', parcels: names })

  async function prepared(lifecycles: RunnableLifecycle[], options: Partial<ReplicaOptions> = {}): Promise<Replica> {
    const replica = new Replica({ db: database.db, lifecycles, logger: silentLogger, ...options })
    replicas.push(replica)
    await replica.prepare()
    return replica
  }
  const pass = async (ms: number) => {
    for (const one of [orders(), parcels()]) await backDate(one as never, ms)
  }
  return { database, orders, parcels, stored, insert, prepared, pass }
}

export const idOf = (key: string, parent = 'o') => `order/${parent}/${key}`
