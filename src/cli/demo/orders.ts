import type { Db, ObjectId } from 'mongodb'
import { lifecycleOf } from '../../phases/index.js'
import { sleep } from '../../time/index.js'

interface Order {
  _id: ObjectId
}

/** The lifecycle of the demo: an order is paid, packed and shipped, each by a handler that takes a moment. */
export const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  lockTimeout: '4s',
  concurrency: 4,
  phases: {
    Paying: { next: ['Packing'] },
    Packing: { next: ['Shipping'] },
    Shipping: { next: ['Delivered'] },
    Delivered: { final: true, keepFor: '1h' },
  },
})

/** The number of handlers that an order needs. */
export const STEPS = 3
const STEP_MS = 250

/** The runs of handlers: one more than {@link STEPS} for an order whose handler died. Nothing in Phaselock reads them. */
export const runsIn = (db: Db) => db.collection('demo.runs')

export const ordersOf = (db: Db, replica: string) => {
  const work = async (id: ObjectId, phase: string) => {
    await runsIn(db).insertOne({ order: id, phase, replica })
    await sleep(STEP_MS)
  }
  return order.handle({
    async Paying({ _id }, step) {
      await work(_id, 'Paying')
      return step.moveTo('Packing')
    },
    async Packing({ _id }, step) {
      await work(_id, 'Packing')
      return step.moveTo('Shipping')
    },
    async Shipping({ _id }, step) {
      await work(_id, 'Shipping')
      return step.moveTo('Delivered')
    },
  })
}
