import { ObjectId } from 'mongodb'
import { type BoundLifecycleOf, PhaselockModule } from '../../src/nest/index.js'
import { type IdOf, lifecycleOf } from '../../src/phases/index.js'

interface Order {
  _id: ObjectId
  state?: 'Wanted' | 'Cancelled'
  customer: string
  total?: number
  createdAt: Date
}

const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  phases: {
    Taking: { next: ['Taken'], entry: true },
    Importing: { next: ['Taken'], entry: true },
    Taken: { rest: true },
    Cancelling: { next: ['Gone'] },
    Gone: { final: true },
  },
  rules: [{ when: 'Cancelled', from: 'any', moveTo: 'Cancelling' }],
})
declare const orders: BoundLifecycleOf<typeof order>
declare const session: import('mongodb').ClientSession

export async function owner() {
  const id: ObjectId = await orders.insert({ customer: 'ann' }, { session })
  await orders.insert({ _id: id, customer: 'ann', phase: 'Importing', total: 3, state: 'Wanted' })
  await orders.insertMany([{ customer: 'ann' }, { customer: 'bea', lockedAt: new Date('2030-01-01T00:00:00Z') }])
  // @ts-expect-error a field that the document must have
  await orders.insert({ total: 3 })
  // @ts-expect-error a field that the document has not
  await orders.insert({ customer: 'ann', totl: 3 })
  // @ts-expect-error a phase that isn't an entry
  await orders.insert({ customer: 'ann', phase: 'Taken' })
  // @ts-expect-error a field that Phaselock alone writes
  await orders.insert({ customer: 'ann', lockedBy: 'me' })
  // @ts-expect-error another type of id
  await orders.insert({ _id: 'a', customer: 'ann' })

  const met = await orders.insert({ _id: id, customer: 'ann' }, { onDuplicate: 'runAgain', session })
  const same: readonly [ObjectId, string] = [met.id, met.kind]
  // @ts-expect-error what it came to, not its _id
  const other: ObjectId = await orders.insert({ _id: id, customer: 'ann' }, { onDuplicate: 'wake' })
  // @ts-expect-error an unknown way to meet a document
  await orders.insert({ _id: id, customer: 'ann' }, { onDuplicate: 'replace' })
  // @ts-expect-error one at a time
  await orders.insertMany([{ _id: id, customer: 'ann' }], { onDuplicate: 'wake' })

  const verdict: 'done' | 'notFound' | 'held' | 'parked' | 'notParked' | 'unchanged' = await orders.setState(
    id,
    'Cancelled',
    { session },
  )
  // @ts-expect-error a state that the document has not
  await orders.setState(id, 'Canceled')
  // @ts-expect-error an id of another type
  await orders.setState('a', 'Cancelled')
  await orders.wake(id, { session })
  await orders.unpark(id, { session, by: 'anna' })
  await orders.remove(id, { session })
  // @ts-expect-error not a session
  await orders.remove(id, { session: 'mine' })
  // @ts-expect-error an unknown option
  await orders.wake(id, { sesion: session })

  const found = await orders.find(id, { session })
  const phase: 'Taking' | 'Importing' | 'Taken' | 'Cancelling' | 'Gone' | undefined = found?.phase
  const customer: string | undefined = found?.customer
  const waiting: string | undefined = found?.progress?.waitingFor
  // @ts-expect-error a phase that isn't of this lifecycle
  const typo = found?.phase === 'Takn'
  // @ts-expect-error a field that the document has not
  const field = found?.custmer
  // The same through the owner's own object
  await orders.owner().setState(id, 'Wanted')
  return { verdict, phase, customer, waiting, typo, field, same, other }
}

// A document without a state has none to set; an id that it doesn't declare may be any
const plain = lifecycleOf<{ n?: number }>().define({
  name: 'plain',
  collection: 'Plain',
  phases: { A: { next: ['B'] }, B: { final: true } },
})
declare const plains: BoundLifecycleOf<typeof plain>
export async function withoutState() {
  const id: unknown = await plains.insert({})
  await plains.insert({ _id: 5, phase: 'A' })
  // @ts-expect-error a final phase is no entry
  await plains.insert({ phase: 'B' })
  // @ts-expect-error it has no state
  await plains.setState(id, 'Wanted')
}
export type IdIsKnown = [IdOf<Order>, IdOf<{ _id?: string }>] extends [ObjectId, string] ? true : never
export const idIsKnown: IdIsKnown = true

PhaselockModule.forFeature([order], { database: 'orders' })
PhaselockModule.forRoot({ indexes: 'check' })
// @ts-expect-error an unknown way to treat indexes
PhaselockModule.forRoot({ indexes: 'never' })
// @ts-expect-error an unknown option
PhaselockModule.forFeature([order], { databse: 'orders' })
