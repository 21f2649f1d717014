import { describe, expect, jest, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import { flowOf, lifecycleOf, OwnerClient, Replica, silentLogger } from '../../src/index.js'
import { beginOperation, operationLifecycle, previewOperation } from '../../src/operations/index.js'
import { backDate } from '../../src/testing/index.js'
import { useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { randomNumbers } from '../support/random.js'
import { TcpProxy } from '../support/tcp-proxy.js'

jest.setTimeout(300_000)

interface Order {
  _id: string
  round: number
  state?: 'Deleted'
}
interface Part {
  _id: string
  round: number
  state?: 'Deleted'
}
interface Night {
  _id: string
  day: number
}

const MOST_TURNS = 150
const FAULTS = 45
const ORDERS = 4
const RUNS = 3

const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  phases: {
    Clearing: { next: ['Shipping'], entry: true },
    Shipping: { next: ['Shipped'] },
    Shipped: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
  maxAttempts: 1_000,
  maxClaims: 1_000,
})
/** Taken down by a rule of its own. */
const parcel = lifecycleOf<Part>().define({
  name: 'parcel',
  collection: 'Parcel',
  child: true,
  phases: {
    Packing: { next: ['Packed'], entry: true },
    Packed: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, failed: true },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
  maxAttempts: 1_000,
  maxClaims: 1_000,
})
/** Removed outright, and told. */
const label = lifecycleOf<Part>().define({
  name: 'label',
  collection: 'Label',
  child: true,
  phases: { Printing: { next: ['Printed'] }, Printed: { rest: true } },
  callbacks: ['onMoved', 'onRemoved'],
  callbackTimeout: '5s',
  maxAttempts: 1_000,
  maxClaims: 1_000,
})
const nightly = flowOf<Night>().define({
  name: 'nightly',
  collection: 'Nightly',
  tasks: {
    extract: {},
    clean: { after: ['extract'] },
    train: { after: ['extract'] },
    report: { after: ['clean', 'train'], when: 'allDone' },
  },
  settings: { maxAttempts: 1_000, maxClaims: 1_000 },
})

describe('children and flows beside crashes and lost answers', () => {
  const ends = useEnds()
  const database = useDatabase()

  test.each([1, 2])(
    'none is lost, left over or removed beside its parent, what begins again does so whole, and nothing is stuck (seed %i)',
    async (seed) => {
      const random = randomNumbers(seed)
      const { db } = database
      const all = (name: string) => db.collection<{ _id: string } & Document>(name)
      const wrong: string[] = []
      const told = new Map<string, string[]>()
      let turn = 0
      let faults = 0
      const hiccup = () => {
        if (random() < 0.15) throw new Error('dropped')
      }
      const soon = () => new Promise((resolve) => setTimeout(resolve, random() * 5))

      const lifecycles = () => {
        const work = async (step: any, goTo: string) => {
          await soon()
          hiccup()
          return random() < 0.2 ? step.wait('tape', { for: '5s' }) : step.moveTo(goTo)
        }
        const task = async (doc: any, step: any) => {
          await soon()
          hiccup()
          return step.moveTo('Succeeded', { set: { result: doc.run.day } })
        }
        return [
          order.handle({
            async Clearing(_doc, step) {
              const gone = await step.removeChildren({ lists: ['Shipping'] })
              hiccup()
              return gone.done ? step.moveTo('Shipping') : step.wait(gone.text)
            },
            async Shipping(doc, step) {
              await step.children([
                ...['a', 'b', 'c'].map((key) => parcel.child(key, { round: doc.round })),
                label.child('a', { round: doc.round }),
              ])
              hiccup()
              const ended = await step.childrenDone({ rule: 'allDone' })
              if (!ended.done) return step.wait(ended.text)
              if (ended.counts.succeeded !== 4)
                wrong.push(`turn ${turn}: ${doc._id} counts ${JSON.stringify(ended.counts)}`)
              return step.moveTo('Shipped')
            },
            async Deleting(_doc, step) {
              const gone = await step.removeChildren()
              hiccup()
              return gone.done ? step.moveTo('Deleted') : step.wait(gone.text)
            },
          }),
          parcel.handle({
            Packing: (_doc, step) => work(step, 'Packed') as never,
            Deleting: (_doc, step) => work(step, 'Deleted') as never,
          }),
          label.handle(
            { Printing: (_doc, step) => work(step, 'Printed') as never },
            {
              async onMoved({ id, seq }) {
                await soon()
                hiccup()
                told.set(String(id), [...(told.get(String(id)) ?? []), `moved ${seq}`])
              },
              async onRemoved({ id, seq }) {
                await soon()
                hiccup()
                told.set(String(id), [...(told.get(String(id)) ?? []), `removed ${seq}`])
              },
            },
          ),
          ...nightly.handle({ extract: task, clean: task, train: task, report: task }),
          operationLifecycle({ db, doorbell: 'off' }),
        ]
      }

      const up = async () => {
        const proxy = await TcpProxy.start(database.uri)
        ends.push(() => proxy.stop())
        const client = await new MongoClient(proxy.uri, {
          ...{ serverSelectionTimeoutMS: 2_000, retryWrites: false },
        }).connect()
        ends.push(() => client.close(true))
        const replica = new Replica({
          ...{ db: client.db(db.databaseName), lifecycles: lifecycles() as never, logger: silentLogger },
          ...{ doorbell: 'off', grace: '0s' },
        })
        await replica.prepare()
        ends.push(() => replica.stop())
        let isUp = true
        const crashed = Promise.withResolvers<void>()
        /** A command is lost before or after it is executed: that is all, or the end of this replica. */
        const fault = (isDeadly: boolean) => {
          let left = 1 + Math.floor(random() * 40)
          const isIt = () => {
            left -= 1
            if (left !== 0) return false
            faults += 1
            if (isDeadly)
              setTimeout(() => {
                isUp = false
                proxy.refuse()
                crashed.resolve()
              }, random() * 3)
            return true
          }
          if (random() < 0.4) proxy.cutBefore(isIt)
          else proxy.cutAfter(isIt)
        }
        return { replica, fault, crashed: crashed.promise, isUp: () => isUp }
      }

      const alive = [await up(), await up()]
      const orders = new OwnerClient<Order & Document>(db, order.model)
      const runs = new OwnerClient<any>(db, nightly.runs.model)
      const system = { db, doorbell: 'off', models: [order.model, nightly.runs.model] } as never
      for (let i = 0; i < ORDERS; i += 1) await orders.insert({ _id: `o${i}`, round: 0 } as never)
      for (let i = 0; i < RUNS; i += 1) await runs.insert({ _id: `n${i}`, day: 0 })
      let day = 0
      /** What each run was last begun again from, and with which day. */
      const redone = new Map<string, { from: string; day: number }>()
      const redo = async () => {
        const _id = `n${Math.floor(random() * RUNS)}`
        const from = ['extract', 'clean', 'train', 'report'][Math.floor(random() * 4)]!
        day += 1
        const request = {
          ...{ action: 'redo' as const, by: 'ana', selection: { lifecycle: 'nightly', filter: { _id } } },
          options: { phase: 'Running', set: { redo: [from], day } },
        }
        await previewOperation(system, request)
        await beginOperation(system, request)
        redone.set(`${_id} ${day}`, { from, day })
      }
      const again = () =>
        orders.insert({ _id: `o${Math.floor(random() * ORDERS)}`, round: turn, phase: 'Clearing' } as never, {
          onDuplicate: 'runAgain',
        })

      const pass = async () => {
        for (const name of ['Order', 'Parcel', 'Label', 'Nightly', 'Nightly.tasks', 'phaselock.operations'])
          await backDate(all(name) as never, 15_000)
      }
      const tick = async () => {
        await Promise.all(
          alive.map(async ({ replica, crashed }) => {
            const whole = replica.tick().then(() => replica.idle())
            await Promise.race([whole.catch(() => undefined), crashed])
          }),
        )
        for (const [i, one] of alive.entries()) {
          if (one.isUp()) continue
          void one.replica.stop()
          alive[i] = await up()
        }
        await pass()
      }
      const unsettled = async () =>
        (await all('Order').countDocuments({ phase: { $ne: 'Shipped' } })) +
        (await all('Nightly').countDocuments({ phase: 'Running' })) +
        (await all('phaselock.operations').countDocuments({ phase: 'Running' }))

      for (; turn < MOST_TURNS && (faults < FAULTS || (await unsettled()) > 0); turn += 1) {
        if (faults < FAULTS) {
          for (const one of alive) if (random() < 0.7) one.fault(random() < 0.3)
          if (random() < 0.4) await redo()
          if (random() < 0.5) await again()
        }
        await tick()
      }
      const stuck = await unsettled()
      if (stuck > 0)
        for (const name of ['Order', 'Nightly', 'phaselock.operations'])
          for (const one of await all(name)
            .find({ phase: { $nin: ['Shipped', 'Succeeded', 'Failed', 'Done'] } })
            .toArray())
            wrong.push(`stuck: ${name} ${one._id} ${one['phase']} ${JSON.stringify(one['progress'])}`)
      expect(wrong).toEqual([])

      for (const one of await all('Order').find().toArray())
        for (const name of ['Parcel', 'Label']) {
          const those = await all(name).find({ 'progress.parent.id': one._id }).toArray()
          expect(those.map(({ phase }) => phase)).toEqual(name === 'Parcel' ? Array(3).fill('Packed') : ['Printed'])
        }
      for (const run of await all('Nightly').find().toArray()) {
        expect(run).toMatchObject({ phase: 'Succeeded' })
        expect(run).not.toHaveProperty('redo')
        const results = Object.fromEntries(
          (await all('Nightly.tasks').find({ 'progress.parent.id': run._id }).toArray()).map((one) => [
            one['progress'].parent.key,
            one['result'],
          ]),
        )
        expect(Object.keys(results).sort()).toEqual(['clean', 'extract', 'report', 'train'])
        // The latest that was begun again has the latest day, and what comes after it, too.
        const mine = [...redone].filter(([key]) => key.startsWith(`${run._id} `)).map(([, one]) => one)
        const last = mine.filter(({ day }) => day <= run['day']).at(-1)
        if (last)
          expect({ run: run._id, from: last.from, day: results[last.from], report: results['report'] }).toEqual({
            run: run._id,
            from: last.from,
            day: run['day'],
            report: run['day'],
          })
      }
      // Each in its order; what follows a removal begins anew.
      for (const [id, events] of told) {
        let last = 0
        for (const event of events) {
          const [what, seq] = [event.split(' ')[0]!, Number(event.split(' ')[1])]
          if (seq < last && !(seq === 1)) wrong.push(`${id}: ${events.join(', ')}`)
          last = what === 'removed' ? 0 : seq
        }
      }
      expect(wrong).toEqual([])

      await Promise.all([all('Order'), all('Nightly')].map((one) => one.updateMany({}, { $set: { state: 'Deleted' } })))
      const rest = async () => {
        const names = ['Order', 'Nightly', 'Parcel', 'Label', 'Nightly.tasks']
        return Object.fromEntries(
          await Promise.all(names.map(async (name) => [name, await all(name).countDocuments()])),
        )
      }
      for (let more = 0; more < 60; more += 1) {
        if (more < 8) for (const one of alive) if (random() < 0.7) one.fault(random() < 0.3)
        await tick()
        if (Object.values(await rest()).every((n) => n === 0)) break
      }
      expect(await rest()).toEqual({ Order: 0, Nightly: 0, Parcel: 0, Label: 0, 'Nightly.tasks': 0 })
    },
  )
})
