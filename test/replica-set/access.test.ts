import { beforeEach, expect, test } from '@jest/globals'
import type { Collection, Db, Document, MongoClient } from 'mongodb'
import { MissingRights } from '../../src/database/index.js'
import { lifecycleOf, OwnerClient, Replica, type ReplicaOptions } from '../../src/index.js'
import { DUTIES_COLLECTION, REPLICAS_COLLECTION } from '../../src/lock/index.js'
import { mongoLockProvider } from '../../src/locks/index.js'
import { Schedules } from '../../src/schedules/index.js'
import { backDate } from '../../src/testing/index.js'
import { THINGS, useCliFolder } from '../cli/cli-process.js'
import { eventually } from '../support/database.js'
import { gate, recordingLogger } from '../support/thing.js'
import { describeWithMongod } from './mongod.js'
import { documentedRoles, lacking, useAccess } from './with-access.js'

interface Thing {
  _id: string
  state?: 'Wanted' | 'Deleted'
  n?: number
}

const thing = lifecycleOf<Thing>().define({
  name: 'thing',
  collection: 'Thing',
  phases: {
    Creating: { next: ['Created'], deadline: { after: '1h', moveTo: 'Deleting', setState: 'Deleted' } },
    Created: { rest: true },
    Deleting: { next: ['Gone', 'Archived'] },
    Gone: { final: true },
    Archived: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Deleted', from: ['Creating', 'Created'], moveTo: 'Deleting' }],
  lockTimeout: '1s',
})

const DOORBELL = 'phaselock.doorbell'
/** Without rights on these a replica works as ever. */
const SPARED = [DOORBELL, REPLICAS_COLLECTION, DUTIES_COLLECTION]

describeWithMongod('with access control, by the roles of docs/mongodb-role.md', () => {
  const access = useAccess()
  const { closing, refused, user, connected } = access
  const folder = useCliFolder()

  let admin: MongoClient
  let name: string
  beforeEach(() => {
    ;({ admin, name } = access)
  })
  const privilegesOf = async (...roles: string[]) =>
    (await documentedRoles(name)).filter(({ role }) => roles.includes(role)).flatMap(({ privileges }) => privileges)
  const things = () => admin.db(name).collection('Thing')
  const raw = () => things() as unknown as Collection<Document & { _id: string }>

  /** Its handlers wait, throw, park, store and take long, by the name of the document. */
  function replicaFor(db: Db, options: Partial<ReplicaOptions> = {}) {
    const longer = gate()
    const bound = thing.handle({
      async Creating(doc, step) {
        if (doc._id === 'park') return step.park('no')
        if (doc._id === 'throw') throw new Error('no')
        if (doc._id === 'wait') return step.wait('a van', { for: '2s' })
        if (doc._id === 'long') await longer.wait
        await step.checkpoint({ n: 1 })
        return step.name === 'again' ? step.moveTo('Created') : step.again({ step: 'again', set: { n: 2 } })
      },
      Deleting: async (doc, step) => step.moveTo(doc._id === 'keep' ? 'Archived' : 'Gone'),
    })
    const logger = recordingLogger()
    const replica = new Replica({ db, lifecycles: [bound], logger, ...options })
    closing.push(() => replica.stop())
    return { replica, logger, longer }
  }

  test.each([
    ['create', 'changeStream'],
    ['create', 'capped'],
    ['check', 'changeStream'],
  ] as const)("a replica with indexes: '%s' and a doorbell by %s does all that it does", async (indexes, doorbell) => {
    const [create, check] = (await documentedRoles(name)).filter(({ role }) => role === 'phaselock')
    const { privileges } = indexes === 'create' ? create! : check!
    // What the page says of change streams.
    const more = { resource: { db: name, collection: DOORBELL }, actions: ['changeStream'] }
    const db = await connected(await user(doorbell === 'changeStream' ? [...privileges, more] : privileges))
    if (indexes === 'check') {
      await replicaFor(admin.db(name)).replica.prepare()
      await admin.db(name).createCollection(DOORBELL, { capped: true, size: 65_536 })
    }
    const { replica, logger, longer } = replicaFor(db, { indexes, doorbell })
    await replica.prepare()
    const ids = ['park', 'throw', 'wait', 'long', 'keep', 'gone', 'late']
    await raw().insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))
    await replica.tick()
    const held = await raw().findOne({ _id: 'long' })
    await eventually(async () => expect(await raw().findOne({ _id: 'long' })).not.toEqual(held)) // renewed
    longer.open()
    await replica.runOnce()
    for (const ms of [3_700_000, 3_700_000]) {
      await backDate(things(), ms, { filter: { $expr: { $in: ['$_id', ['wait', 'keep']] } } })
      await raw().updateMany({ _id: { $in: ['keep', 'gone'] } }, { $set: { state: 'Deleted' } })
      await replica.runOnce()
    }
    await backDate(things(), 3_700_000, { filter: { phase: 'Archived' } })
    await replica.runOnce()
    expect(await raw().distinct('_id', { phase: { $ne: 'Created' } })).toEqual(['park', 'throw'])
    replica.wakeBetweenTicks()
    await eventually(() => expect(replica.status().doorbell).toBe(doorbell))
    await raw().insertOne({ _id: 'rung', phase: 'Creating' })
    await admin
      .db(name)
      .collection(DOORBELL)
      .insertOne({ lifecycles: ['thing'], phases: ['Creating'], ids: ['rung'] })
    await eventually(async () => expect(await raw().findOne({ _id: 'rung' })).toMatchObject({ phase: 'Created' }))
    await replica.stop()
    expect(refused).toEqual([])
    expect(logger.lines.filter(({ message }) => /not authorized|rights/.test(message))).toEqual([])
  })

  test('an owner, named locks, and schedules with their replica', async () => {
    await replicaFor(admin.db(name)).replica.prepare()
    await admin.db(name).createCollection(DOORBELL, { capped: true, size: 65_536 })
    await admin.db(name).collection(DOORBELL).insertOne({ lifecycles: [] })
    const owner = new OwnerClient<Thing>(
      await connected(await user(await privilegesOf('phaselock-owner'), 'owner')),
      thing.model,
    )
    await owner.insert({ _id: 'a' })
    await owner.find('a')
    await owner.setState('a', 'Wanted', { force: true })
    await owner.wake('a')
    await owner.unpark('a')
    await owner.remove('a')
    await owner.flush()
    expect(await admin.db(name).collection(DOORBELL).countDocuments({ ids: 'a' })).toBeGreaterThan(0)

    const locks = mongoLockProvider(await connected(await user(await privilegesOf('phaselock-locks'), 'locks')))
    const lock = await locks.lock({ name: 'report', lockAtMostFor: '1h' })
    const longer = await lock!.extend('2h')
    expect(await locks.list()).toHaveLength(1)
    expect(await longer!.unlock()).toBe(true)

    const [forReplicas] = (await documentedRoles(name)).filter(({ role }) => role === 'phaselock')
    const both = [...forReplicas!.privileges, ...(await privilegesOf('phaselock-schedules'))]
    const db = await connected(await user(both, 'scheduler'))
    const runs: string[] = []
    const schedules = new Schedules({ db, tasks: { work: async () => void runs.push('s') } })
    const replica = new Replica({ db, lifecycles: schedules.lifecycles, doorbell: 'off' })
    closing.push(() => replica.stop())
    await replica.prepare()
    await schedules.upsert('s', { task: 'work', cron: '0 0 1 1 *' })
    await schedules.run('s')
    await replica.runOnce()
    expect(runs).toEqual(['s'])
    await schedules.list()
    await schedules.runs('s')
    await schedules.statistics('s')
    await schedules.remove('s')
    await replica.runOnce()
    await replica.stop()
    expect(refused).toEqual([])
  })

  test.each(['create', 'check'] as const)(
    "indexes: '%s': a role that lacks any right is refused at the start, with its name and what to do",
    async (indexes) => {
      await replicaFor(admin.db(name)).replica.prepare()
      const [create, check] = (await documentedRoles(name)).filter(({ role }) => role === 'phaselock')
      const { privileges } = indexes === 'create' ? create! : check!
      const db = await connected(await user(privileges))
      const told: string[] = []
      for (const { resource, actions } of privileges) {
        for (const action of actions) {
          const { collection } = resource
          await admin.db(name).command({ updateRole: 'replica', privileges: lacking(privileges, collection, action) })
          const { replica, logger } = replicaFor(db, { indexes })
          const error = await replica.prepare().catch((thrown: unknown) => thrown)
          await replica.stop()
          const text = error instanceof Error ? error.message : logger.lines.map(({ message }) => message).join()
          if (text === '') told.push(`nothing: ${action} on ${collection}`)
          else expect(text).toContain(`are missing:\n  - ${action} on ${collection}\n`)
          if (!SPARED.includes(collection)) {
            expect(error).toBeInstanceOf(MissingRights)
            expect(text).toContain(`"actions":["${action}"]`)
            expect(text).toContain(`db.getSiblingDB('${name}').grantRolesToUser('replica'`)
          } else expect(error).toBeUndefined()
        }
      }
      // Needed only where the collection is there and isn't capped.
      expect(told).toEqual(indexes === 'create' ? [`nothing: dropCollection on ${DOORBELL}`] : [])
      expect(refused).toEqual([])
    },
  )

  test('the same for replicas with schedules', async () => {
    const [forReplicas] = (await documentedRoles(name)).filter(({ role }) => role === 'phaselock')
    const own = await privilegesOf('phaselock-schedules')
    const db = await connected(await user([...forReplicas!.privileges, ...own]))
    const start = async () => {
      const schedules = new Schedules({ db, tasks: { work: async () => undefined } })
      const replica = new Replica({ db, lifecycles: schedules.lifecycles, doorbell: 'off' })
      return await replica.prepare().then(
        () => replica.stop(),
        (error: Error) => error.message,
      )
    }
    expect(await start()).toBeUndefined()
    const ofOwners = ['insert on schedules', 'remove on schedules']
    for (const { resource, actions } of own) {
      for (const action of actions) {
        const what = `${action} on ${resource.collection}`
        const privileges = [...forReplicas!.privileges, ...lacking(own, resource.collection, action)]
        await admin.db(name).command({ updateRole: 'replica', privileges })
        if (ofOwners.includes(what)) expect([what, await start()]).toEqual([what, undefined])
        else expect(await start()).toContain(`are missing:\n  - ${what}\n`)
      }
    }
  })

  test('the command line, and what it says without a right', async () => {
    await replicaFor(admin.db(name)).replica.prepare()
    const privileges = await privilegesOf('phaselock-operator')
    const uri = `${await user(privileges, 'operator')}&authSource=${name}`
    const run = (...args: string[]) => folder().run(args, { MONGODB_URI: uri, PHASELOCK_LIFECYCLES: THINGS })
    await mongoLockProvider(admin.db(name)).lock({ name: 'report', lockAtMostFor: '1h' })
    // An array makes the claim index multikey for good: the repair builds it anew.
    await raw().insertOne({ _id: 'odd', phase: 'Creating', lockedAt: [new Date(0), new Date()] })
    await raw().deleteOne({ _id: 'odd' })
    const commands = [
      ['add', 'thing', '{"_id":"a"}'],
      ['list'],
      ['list', 'thing'],
      ['show', 'a'],
      ['wake', 'a'],
      ['unpark', 'a'],
      ['set-state', 'a', 'Deleted'],
      ['set-lock-timeout', 'thing', '40s'],
      ['check'],
      ['check', '--repair'],
      ['locks'],
      ['locks', 'release', 'report', '--yes'],
      ['schedules'],
      ['runs'],
      ['remove', 'a', '--yes'],
      ['audit'],
      ['callbacks'],
      ['events'],
      ['add', 'thing', '{"_id":"b"}'],
      ['operations', 'run', 'set-state', '--to-state', 'Deleted', '--lifecycle', 'thing', '--all', '--yes'],
      ['operations'],
      ['operations', 'run', 'redo', '--to-phase', 'Creating', '--lifecycle', 'thing', '--all', '--yes'],
      ['operations', 'resume'],
    ]
    const failed: unknown[] = []
    for (const args of commands) {
      const { code, err, out } = await run(...args)
      if (/not authorized|requires authentication/i.test(err + out)) failed.push({ args, code, err, out })
    }
    expect(failed).toEqual([])
    await admin.db(name).command({ updateRole: 'operator', privileges: lacking(privileges, 'Thing', 'find') })
    const { code, err } = await run('list')
    expect(code).toBe(1)
    expect(err).toMatch(/not authorized on access_\d+ to execute command \{ distinct: "Thing"/)
    expect(err).not.toMatch(/\n +at /)
  })
})
