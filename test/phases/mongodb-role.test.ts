import { readFile } from 'node:fs/promises'
import { afterEach, describe, expect, test } from '@jest/globals'
import { type CommandStartedEvent, MongoClient } from 'mongodb'
import { lifecycleOf, Replica, type ReplicaOptions } from '../../src/index.js'
import { eventually, useDatabase } from '../support/database.js'

interface Order {
  _id: string
  state?: 'Wanted' | 'Cancelled'
  n?: number
  way?: string
}

const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  phases: {
    Taking: { next: ['Taken'], deadline: { after: '1h', moveTo: 'Cancelling', setState: 'Cancelled' } },
    Taken: { rest: true },
    Cancelling: { next: ['Gone', 'Archived'] },
    Gone: { final: true },
    Archived: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Cancelled', from: ['Taking', 'Taken'], moveTo: 'Cancelling' }],
  lockTimeout: '1s',
})

const database = useDatabase()
let client: MongoClient | undefined

afterEach(async () => {
  await client?.close()
})

/** All that a replica does with documents, every kind of outcome included; resolves to its commands as `name target`. */
async function commandsOfALife(options: Partial<ReplicaOptions>): Promise<Set<string>> {
  const seen = new Set<string>()
  const observed = new MongoClient(database.uri, { monitorCommands: true })
  client = observed
  observed.on('commandStarted', ({ commandName, command }: CommandStartedEvent) => {
    const about = commandName === 'explain' ? Object.values(command['explain'])[0] : command[commandName]
    // They go on with one's own cursor, by its number: whether there are any depends on how much is found at once.
    if (commandName !== 'getMore' && commandName !== 'killCursors') seen.add(`${commandName} ${target(about)}`)
    const [merge] = commandName === 'aggregate' ? command['pipeline'].slice(-1) : []
    if (merge?.$merge) seen.add(`merge ${target(merge.$merge.into)}`)
  })
  const db = observed.db(database.db.databaseName)
  const until = Promise.withResolvers<void>()
  const orders = order.handle({
    async Taking(doc, step) {
      if (doc.way === 'park') return step.park('no')
      if (doc.way === 'throw') throw new Error('no')
      if (doc.way === 'wait') return step.wait('a van', { for: '2s' })
      if (doc.way === 'lost')
        await database.db.collection<Order>('Order').updateOne({ _id: doc._id }, { $unset: { lockedBy: 1 } })
      if (doc.way === 'long') {
        await step.checkpoint({ n: 7 })
        await until.promise
      }
      return step.name === 'again' ? step.moveTo('Taken') : step.again({ step: 'again', set: { n: doc.n ?? 1 } })
    },
    Cancelling: async (doc, step) => step.moveTo(doc.way === 'keep' ? 'Archived' : 'Gone'),
  })
  const replica = new Replica({ db, lifecycles: [orders], ...options })
  await replica.prepare()
  // What owners write comes by their own connection and with their own rights.
  const documents = database.db.collection<Order & { phase: string }>('Order')
  const many = Array.from({ length: 300 }, (_, n) => ({ _id: `m${n}`, phase: 'Taking', n }))
  const ways = ['park', 'throw', 'wait', 'lost', 'long', 'keep', 'late'].map((way) => ({
    _id: way,
    phase: 'Taking',
    way,
  }))
  const anHourAgo = (path: string) => ({ $subtract: [path, 3_700_000] })
  const longAgo = (id: string) =>
    documents.updateOne({ _id: id }, [
      { $set: { lockedAt: anHourAgo('$lockedAt'), 'progress.since': anHourAgo('$progress.since') } },
    ])
  await documents.insertMany([...many, ...ways, { _id: 'unknown', phase: 'Tkaing' }])
  await replica.tick()
  await eventually(() => expect(replica.status().running).toBe(1))
  const before = await documents.findOne({ _id: 'long' })
  // It is renewed: later than it was claimed.
  await eventually(async () => expect(await documents.findOne({ _id: 'long' })).not.toEqual(before))
  until.resolve()
  await replica.runOnce()
  await longAgo('wait')
  await documents.updateMany({ _id: { $in: ['keep', 'm1', 'm2'] } }, { $set: { state: 'Cancelled' } })
  await replica.runOnce()
  await longAgo('keep')
  await replica.runOnce()
  expect(await documents.find({ _id: { $in: ['keep', 'm1', 'm2', 'wait'] } }).toArray()).toEqual([])
  expect(await documents.countDocuments({ phase: 'Taken' })).toBeGreaterThan(290)
  // One that was killed yesterday: a beat removes what it has left.
  await database.db
    .collection<{ _id: string }>('phaselock.replicas')
    .insertOne({ _id: 'killed~1', seenAt: new Date(0) } as never)
  // The first thing that it meets is a doorbell that is of no use as it is: not capped, or, where it may not mend that, empty.
  replica.wakeBetweenTicks()
  await eventually(() => expect(replica.status().doorbell).toBe('capped'))
  await replica.tick()
  await eventually(() => expect([...seen]).toContain('delete phaselock.replicas'))
  // They are begun half a minute after a start.
  for (const name of ['phaselock.duties', 'phaselock.flows'])
    await database.db.collection(name).deleteMany()
    // As if the minute in which it has worked were over.
  ;(replica as never as { env: { flows: { last(): unknown } } }).env.flows.last()
  await (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
  await replica.stop()
  return seen
}

function target(collection: unknown): string {
  if (typeof collection !== 'string') return 'the server'
  return collection === 'Order' ? 'yours' : collection
}

type Mode = 'create' | 'check'

interface Documented {
  /** `name target`. */
  readonly command: string
  readonly actions: readonly string[]
}

/** As far as it is about replicas; test/schedules/mongodb-role.test.ts is for those with schedules. */
const page = async () => (await readFile('docs/mongodb-role.md', 'utf8')).split('\n## Owners\n')[0]!

/** The rows of the page's table that are for a mode. */
async function documented(mode: Mode): Promise<Documented[]> {
  const rows = [...(await page()).matchAll(/^\| `(\w+)` +\| (.+?) +\| (.+?) +\| (\w+) +\|$/gm)]
  return rows
    .filter(([, , , , modes]) => modes === 'both' || modes === mode)
    .map(([, name, where, actions]) => ({
      command: `${name} ${where === 'your collections' ? 'yours' : where!.replaceAll('`', '')}`,
      actions: actions!.replaceAll('`', '').split(', '),
    }))
}

/** The actions of the page's createRole commands: [collection, actions], in the order in which they stand there. */
async function roles(): Promise<[string, string][]> {
  const found = (await page()).matchAll(/collection: '([\w.]+)' \},\s+actions: \[(.+)\]/g)
  return [...found].map(([, collection, actions]) => [collection!, actions!.replaceAll("'", '')])
}

const actionsOn = (place: string, rows: readonly Documented[]) =>
  [...new Set(rows.filter(({ command }) => command.endsWith(` ${place}`)).flatMap(({ actions }) => actions))]
    .sort()
    .join(', ')

describe('docs/mongodb-role.md', () => {
  test("lists just the commands that a replica sends; with indexes: 'check' none of them is DDL", async () => {
    const listed = async (mode: Mode) => (await documented(mode)).map(({ command }) => command).sort()
    const doorbell = 'phaselock.doorbell'
    await database.db.createCollection(doorbell)
    expect([...(await commandsOfALife({ indexes: 'create' }))].sort()).toEqual(await listed('create'))
    await database.db.collection('Order').deleteMany()
    await database.db.dropCollection(doorbell)
    await database.db.createCollection(doorbell, { capped: true, size: 65_536 })
    await client?.close()
    const checking = [...(await commandsOfALife({ indexes: 'check' }))].sort()
    expect(checking).toEqual(await listed('check'))
    expect(checking.filter((command) => /create|drop|collMod/i.test(command))).toEqual([])
  })

  test('its roles hold just the rights of its table', async () => {
    const [create, check] = [await documented('create'), await documented('check')]
    expect(await roles()).toEqual([
      ['Order', actionsOn('yours', create)],
      ['phaselock.lifecycles', actionsOn('phaselock.lifecycles', create)],
      ['phaselock.replicas', actionsOn('phaselock.replicas', create)],
      ['phaselock.duties', actionsOn('phaselock.duties', create)],
      ['phaselock.census', actionsOn('phaselock.census', create)],
      ['phaselock.flows', actionsOn('phaselock.flows', create)],
      ['phaselock.doorbell', actionsOn('phaselock.doorbell', create)],
      ['Order', actionsOn('yours', check)],
      ['phaselock.lifecycles', actionsOn('phaselock.lifecycles', check)],
      ['phaselock.replicas', actionsOn('phaselock.replicas', check)],
      ['phaselock.duties', actionsOn('phaselock.duties', check)],
      ['phaselock.census', actionsOn('phaselock.census', check)],
      ['phaselock.flows', actionsOn('phaselock.flows', check)],
      ['phaselock.doorbell', actionsOn('phaselock.doorbell', check)],
    ])
  })
})
