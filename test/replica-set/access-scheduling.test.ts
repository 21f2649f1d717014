import { expect, jest, test } from '@jest/globals'
import type { Db, Document } from 'mongodb'
import { MissingRights } from '../../src/database/index.js'
import { Limits, lifecycleOf, OwnerClient, Replica, type RunnableLifecycle } from '../../src/index.js'
import { EVENTS_COLLECTION } from '../../src/phases/events/events.js'
import { backDate } from '../../src/testing/index.js'
import { THINGS, useCliFolder } from '../cli/cli-process.js'
import { eventually } from '../support/database.js'
import { recordingLogger, replicaOf, thingWith } from '../support/thing.js'
import { describeWithMongod } from './mongod.js'
import { documentedIn, documentedRoles, lacking, type Privilege, useAccess } from './with-access.js'

jest.setTimeout(120_000)

interface Order {
  _id: string
  state?: 'Deleted'
  rank?: string
}

const parcel = lifecycleOf<{ _id: string; tenant: string }>().define({
  name: 'parcel',
  collection: 'Parcel',
  child: true,
  phases: { Packing: { next: ['Packed'] }, Packed: { rest: true } },
  ...{ limitBy: 'tenant', each: 1, fairBy: 'tenant', callbacks: ['onMoved', 'onRemoved'], events: 'full' },
})
const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  phases: {
    Asking: { next: ['Shipping'], entry: true },
    Shipping: { next: ['Shipped'], limits: [{ name: 'carrier', slots: 2 }] },
    Shipped: { rest: true },
    Deleting: { next: ['Gone'] },
    Gone: { final: true },
  },
  rules: [{ when: 'Deleted', from: ['Asking', 'Shipping', 'Shipped'], moveTo: 'Deleting' }],
  ...{ callbacks: ['onMoved', 'onRemoved'], events: 'full', priorityBy: 'rank' },
})
const told: string[] = []
const onMoved = ({ to }: { to: string }) => void told.push(to)
const onRemoved = ({ lifecycle }: { lifecycle: string }) => void told.push(`${lifecycle} gone`)
const parcels = parcel.handle({ Packing: async (_doc, step) => step.moveTo('Packed') }, { onMoved, onRemoved })
const orders = order.handle(
  {
    Asking: async (_doc, step) =>
      step.answer ? step.moveTo('Shipping') : step.ask({ question: 'Ship it?', options: ['yes', 'no'] }),
    Shipping: async (_doc, step) => {
      await step.children(['a', 'b'].map((key) => parcel.child(key, { tenant: key })))
      const ended = await step.childrenDone({ rule: 'allSucceeded' })
      return ended.done ? step.moveTo('Shipped') : step.wait(ended.text)
    },
    Deleting: async (_doc, step) => {
      const gone = await step.removeChildren()
      return gone.done ? step.moveTo('Gone') : step.wait(gone.text)
    },
  },
  { onMoved, onRemoved },
)

describeWithMongod('with access control, what schedulers have', () => {
  const access = useAccess()
  const { refused, closing, user, connected } = access
  const folder = useCliFolder()
  const documents = (name = 'Order') => access.admin.db(access.name).collection<Document & { _id: string }>(name)

  const role = async (name: string, collection: string): Promise<Privilege[]> => {
    const found = (await documentedRoles(access.name, collection)).find((one) => one.role === name)
    return [...found!.privileges]
  }
  const more = (section: string, collection = 'Order') => documentedIn(section, access.name, collection)
  /** Of the replica that runs the parents, and of the one that runs their children. */
  const rolesOfReplicas = async () => {
    const [ofChildren, ofParents] = await more('Children')
    const limited = await more('Limits')
    const keyed = limited.map((one) => ({ ...one, actions: [...one.actions, 'remove'] }))
    const events = await more('Events')
    return {
      parents: [...(await role('phaselock', 'Order')), ofChildren!, ...limited, ...events],
      children: [...(await role('phaselock', 'Parcel')), ofParents!, ...keyed, ...events],
    }
  }
  function replicaFor(db: Db, lifecycle: RunnableLifecycle) {
    const logger = recordingLogger()
    const replica = new Replica({ db, lifecycles: [lifecycle], logger, doorbell: 'off' })
    closing.push(() => replica.stop())
    return { replica, logger }
  }

  test('replicas and owners of children, limits, keys, turns, events, callbacks, questions, pauses: none of their commands is refused', async () => {
    const roles = await rolesOfReplicas()
    const parents = replicaFor(await connected(await user(roles.parents, 'parents')), orders)
    const children = replicaFor(await connected(await user(roles.children, 'children')), parcels)
    await parents.replica.prepare()
    await children.replica.prepare()
    const audit: Privilege = {
      resource: { db: access.name, collection: 'phaselock.audit' },
      actions: ['createIndex', 'find', 'insert', 'remove', 'update'],
    }
    const owning = [...(await role('phaselock-owner', 'Order')), ...(await more('Owners')), audit]
    const db = await connected(await user(owning, 'owner'))
    const owner = new OwnerClient<Order>(db, order.model, { doorbell: 'off' })
    const run = async () => {
      await parents.replica.runOnce()
      await children.replica.runOnce()
      await backDate(documents() as never, 61_000)
    }
    const untilAllAre = (phase: string, ids: number) =>
      eventually(async () => {
        await run()
        expect(await documents().countDocuments({ phase })).toBe(ids)
      })

    await owner.insert({ _id: 'a' }, { onDuplicate: 'ignore', dueIn: '1s' })
    await owner.insert({ _id: 'b' }, { onDuplicate: 'runAgain' })
    await run()
    expect(await owner.questions()).not.toEqual([])
    await owner.pause({ by: 'ana', audit: true })
    expect(await owner.resume({ audit: { by: 'ana', reason: 'over' } })).toBe(true)
    const limits = new Limits(db)
    await limits.set('carrier', { slots: 3, rate: '100/1m' })
    await limits.pause('carrier', { by: 'ana' })
    await limits.resume('carrier')
    expect(await limits.list({ keys: true })).not.toEqual([])
    await eventually(async () => {
      await run()
      for (const _id of ['a', 'b'])
        await owner.answer(_id, { option: 'yes', by: 'ana', audit: { by: 'ana', reason: 'it is ready' } })
      expect(await documents().countDocuments({ phase: 'Asking' })).toBe(0)
    })
    await untilAllAre('Shipped', 2)
    expect(await owner.cancel('a', { by: 'ana' })).toBe('notHeld')
    await owner.setState('a', 'Deleted', { audit: { by: 'ana', reason: 'a twin' } })
    await owner.remove('b', { audit: { by: 'ana', reason: 'a twin' } })
    await untilAllAre('Gone', 0)
    await eventually(async () => {
      await run()
      expect(await documents().countDocuments()).toBe(0)
    })
    expect(await limits.remove('carrier')).toBe(true)
    for (const { replica } of [parents, children]) {
      replica.wakeBetweenTicks()
      await replica.tick()
      await (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
      await replica.stop()
    }
    expect(told).toEqual(expect.arrayContaining(['Packed', 'Shipped', 'order gone', 'parcel gone']))
    expect(await documents(EVENTS_COLLECTION).countDocuments()).toBeGreaterThan(6)
    expect(refused).toEqual([])
    const lines = [...parents.logger.lines, ...children.logger.lines]
    expect(lines.filter(({ message }) => /not authorized|rights/.test(message))).toEqual([])
  })

  test.each(['find', 'insert', 'remove', 'update'])(
    '%s on phaselock.limits: refused at the start without it',
    async (action) => {
      const { children } = await rolesOfReplicas()
      const db = await connected(await user(lacking(children, 'phaselock.limits', action)))
      const error: unknown = await replicaFor(db, parcels)
        .replica.prepare()
        .catch((thrown: unknown) => thrown)
      expect(error).toBeInstanceOf(MissingRights)
      expect(String(error)).toContain(`are missing:\n  - ${action} on phaselock.limits\n`)
      expect(refused).toEqual([])
    },
  )

  test('remove on a collection whose lifecycle has callbacks: refused at the start without it', async () => {
    const { children } = await rolesOfReplicas()
    const db = await connected(await user(lacking(children, 'Parcel', 'remove')))
    const error: unknown = await replicaFor(db, parcels)
      .replica.prepare()
      .catch((thrown: unknown) => thrown)
    expect(String(error)).toContain('are missing:\n  - remove on Parcel\n')
  })

  test('without a right on the collection of its children a step says so, and goes on when it is granted', async () => {
    const { parents, children } = await rolesOfReplicas()
    await replicaFor(await connected(await user(children, 'children')), parcels).replica.prepare()
    const db = await connected(await user(lacking(parents, 'Parcel', 'insert'), 'parents'))
    const { replica } = replicaFor(db, orders)
    await replica.prepare()
    await documents().insertOne({ _id: 'a', phase: 'Shipping' })
    await replica.runOnce()
    const error = expect.objectContaining({
      message: expect.stringMatching(/^not authorized on access_\d+ to execute command/),
    })
    expect(await documents().findOne()).toMatchObject({ phase: 'Shipping', progress: { error } })
    await access.admin.db(access.name).command({ updateRole: 'parents', privileges: parents })
    await eventually(async () => {
      await backDate(documents() as never, 61_000)
      await replica.runOnce()
      expect(await documents('Parcel').countDocuments()).toBe(2)
    })
  })

  test('the command line', async () => {
    await replicaOf(
      access.admin.db(access.name),
      thingWith(async (_doc, step) => step.moveTo('Created')),
    ).prepare()
    const uri = `${await user(await role('phaselock-operator', 'Thing'), 'operator')}&authSource=${access.name}`
    const failed: unknown[] = []
    const commands = [
      ['add', 'thing', '{"_id":"a"}', '--on-duplicate', 'ignore', '--due-in', '1h'],
      ['pause', '--all', '--reason', 'a test'],
      ['pauses'],
      ['resume', '--all'],
      ['pause', 'thing', '--for', '1h'],
      ['resume', 'thing'],
      ['questions'],
      ['answer', 'a', 'yes'],
      ['cancel', 'a'],
      ['limits'],
      ['limits', 'set', 'carrier', '--slots', '5'],
      ['limits', 'remove', 'carrier'],
      ['status'],
      ['replicas'],
      ['count'],
      ['events', 'a'],
      ['callbacks'],
      ['backfills'],
      ['operations', 'run', 'wake', '--lifecycle', 'thing', '--all', '--yes'],
      ['operations', 'run', 'unpark', '--lifecycle', 'thing', '--all', '--yes'],
      ['operations', 'run', 'remove', '--lifecycle', 'thing', '--all', '--yes'],
      ['audit'],
      ['check', '--repair'],
    ]
    for (const args of commands) {
      const { code, err, out } = await folder().run(args, { MONGODB_URI: uri, PHASELOCK_LIFECYCLES: THINGS })
      if (code === 2 || /not authorized|requires authentication|no entry/i.test(err + out))
        failed.push({ args, code, err, out })
    }
    expect(failed).toEqual([])
  })
})
