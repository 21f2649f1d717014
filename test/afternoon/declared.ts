/** What an app may export: each type in its declarations must have a name that it can import. nest-apps.test.ts compiles it in an app. */
import { Audit, Events, flowOf, Limits, lifecycleOf, Replica } from 'phaselock'
import { connectDatabase } from 'phaselock/database'
import { Schedules, starts } from 'phaselock/schedules'

interface Order {
  _id: string
  state?: 'Running' | 'Deleted'
  tenantId?: string
  isPaid?: boolean
}

export const parcel = lifecycleOf<{ _id: string; grams?: number }>().define({
  name: 'parcel',
  collection: 'Parcel',
  child: true,
  phases: { Packing: { next: ['Sent'] }, Sent: { final: true } },
})
export const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  limits: ['bank'],
  limitBy: 'tenantId',
  each: 3,
  callbacks: ['onMoved'],
  events: 'full',
  phases: { Paying: { next: ['Paid'] }, Paid: { rest: true } },
  rules: [],
})
type Paying = typeof order.$step.Paying

export const orders = order.handle(
  {
    async Paying(_doc, step) {
      if (!step.answer) return step.ask({ question: 'Pay?', options: ['yes', 'no'], timeout: '1h', onTimeout: 'no' })
      await step.children([parcel.child('left', { grams: 3 })])
      return step.moveTo('Paid', { set: { isPaid: true } })
    },
  },
  { onMoved: async () => {} },
)
export const outcomes = (step: Paying) => ({
  again: step.again({ step: 'pack' }),
  ask: step.ask({ question: 'Pay?' }),
  moveTo: step.moveTo('Paid', { set: { isPaid: true } }),
  park: step.park('no money'),
  wait: step.wait('no money', { on: 'bank' }),
})
export const asked = async (step: Paying) => ({
  answer: step.answer,
  children: await step.childrenOf(parcel),
  done: await step.childrenDone({ rule: '1 of 2' }),
  reached: await step.waitFor(order.at('o1', 'Paid')),
  removed: await step.removeChildren(),
})

export const nightly = flowOf<{ _id: string; day?: string }>().define({
  name: 'nightly',
  collection: 'Nightly',
  tasks: { extract: {}, clean: { after: ['extract'] } },
})
export const [runs, tasks] = nightly.handle({
  extract: async (_task, step) => step.moveTo('Succeeded'),
  clean: async (_task, step) => step.moveTo('Failed'),
})

export const connection = await connectDatabase()
export const schedules = new Schedules({
  tasks: { start: starts(orders, ({ tenantId }: { tenantId: string }) => ({ tenantId })), tidy: async () => {} },
})
export const replica = new Replica({ db: connection.db, lifecycles: [orders, runs, tasks, ...schedules.lifecycles] })
export const records = async () => ({
  limits: await new Limits(connection.db).list(),
  audit: await new Audit(connection.db).list(),
  events: await new Events(connection.db).list(),
})
export const owned = async () => ({
  inserted: await orders.insert({ _id: 'o1' }, { onDuplicate: 'runAgain', dueIn: '5s' }),
  paused: await orders.pause({ by: 'ann' }),
  resumed: await orders.resume(),
  cancelled: await orders.cancel('o1', { by: 'ann' }),
  questions: await orders.questions(),
  answer: orders.answer,
})
