import { readFile } from 'node:fs/promises'
import { afterEach, describe, expect, test } from '@jest/globals'
import { type CommandStartedEvent, type Document, MongoClient } from 'mongodb'
import { Replica } from '../../src/index.js'
import { mongoLockProvider } from '../../src/locks/index.js'
import { Schedules } from '../../src/schedules/index.js'
import { backDate } from '../../src/testing/index.js'
import { useDatabase } from '../support/database.js'
import { dueSince, passForRuns } from './support.js'

const COLLECTIONS = ['schedules', 'runs', 'schedules.watch', 'shedLock']
const COLLECTIONS_OF = { replica: COLLECTIONS, owner: ['schedules', 'runs'] }

const database = useDatabase()
let client: MongoClient | undefined
afterEach(async () => {
  await client?.close()
  client = undefined
})

type Kind = 'replica' | 'owner'

/** All that replicas and owners do with schedules, as `command collection`. */
async function commandsOfALife(indexes: 'create' | 'check'): Promise<Record<Kind, string[]>> {
  const seen: Record<Kind, Set<string>> = { replica: new Set(), owner: new Set() }
  let kind: Kind = 'owner'
  client = new MongoClient(database.uri, { monitorCommands: true })
  client.on('commandStarted', ({ commandName, command }: CommandStartedEvent) => {
    for (const collection of collectionsOf(commandName, command)) seen[kind].add(`${commandName} ${collection}`)
  })
  const db = client.db(database.db.databaseName)
  const raw = (name: string) => database.db.collection<{ _id: string }>(name)
  let fails = true
  const tasks = {
    work: async () => {
      if (fails) throw new Error('no')
    },
  }
  const schedules = new Schedules({ db, tasks, keepFor: '1h' })
  const replica = new Replica({ db, lifecycles: schedules.lifecycles, indexes, doorbell: 'off' })
  const as = async <T>(who: Kind, act: () => Promise<T>): Promise<T> => {
    kind = who
    return await act()
  }
  const runOnce = () => as('replica', () => replica.runOnce())

  await as('replica', () => replica.prepare())
  await as('owner', async () => {
    for (const id of ['s', 'coalesced', 'gone'])
      await schedules.upsert(id, { task: 'work', cron: '* * * * *', retry: { attempts: 2, backOff: '300s' } })
    await schedules.upsert('s', {
      task: 'work',
      cron: '*/5 * * * *',
      retry: { attempts: 2, backOff: '300s' },
      maxInstances: 2,
    })
  })
  await runOnce()
  // Failed, tried again, Completed; ten that are missed; none of a schedule that is gone; an edit in the database.
  await dueSince(database.db, 's', 1_000)
  await dueSince(database.db, 'coalesced', 600_000)
  await runOnce()
  fails = false
  await passForRuns(database.db, 301_000)
  await raw('schedules').updateOne({ _id: 'gone' }, { $set: { cron: '0 0 1 1 *' } } as never)
  await backDate(database.db.collection('schedules.watch'), 60_000)
  await runOnce()
  await as('owner', async () => {
    const run = await schedules.run('s')
    await schedules.pause('s')
    await schedules.resume('s')
    await schedules.pauseAll()
    await schedules.resumeAll()
    await schedules.get('s')
    await schedules.list()
    await schedules.runs('s')
    await schedules.findRun(run)
    await schedules.statistics('s')
    await schedules.remove('gone')
  })
  // One that another replica took over; one of a task that is not known here, of which many wait; one whose lock is taken.
  await raw('runs').updateMany(
    { phase: 'Queued' } as never,
    { $set: { phase: 'Running', progress: { claims: 2 } } } as never,
  )
  await as('owner', () => schedules.upsert('other', { task: 'work', interval: '3600s' }))
  await raw('schedules').updateOne({ _id: 'other' }, { $set: { task: 'unknown' } } as never)
  const waiting = Array.from({ length: 100 }, (_, i) => ({
    phase: 'Queued',
    schedule: 'other',
    scheduledFor: new Date(i),
  }))
  await raw('runs').insertMany(waiting as never)
  await runOnce()
  await dueSince(database.db, 'other', 1_000)
  await mongoLockProvider(database.db).lock({ name: 'scheduler_lock:coalesced', lockAtMostFor: '1h' })
  await dueSince(database.db, 'coalesced', 1_000)
  await runOnce()
  expect(await database.db.collection('runs').distinct('phase')).toEqual(
    ['Completed', 'Missed', 'Queued', 'Skipped'].sort(),
  )
  // Runs are removed after a while.
  const ago = (path: string): Document => ({ $subtract: [path, 7_200_000] })
  await raw('runs').updateMany({ phase: 'Completed' } as never, [
    { $set: { lockedAt: ago('$lockedAt'), 'progress.since': ago('$progress.since') } },
  ])
  await runOnce()
  expect(await database.db.collection('runs').countDocuments({ phase: 'Completed' })).toBe(0)
  await as('replica', () => replica.stop())
  return { replica: [...seen.replica].sort(), owner: [...seen.owner].sort() }
}

/** Those that a command reads or writes; a `$unionWith` or `$lookup` is a find of its own. */
function collectionsOf(name: string, command: Document): string[] {
  const about = name === 'explain' ? Object.values(command['explain'] as Document)[0] : command[name]
  return COLLECTIONS.includes(about) ? [about] : []
}

interface Row {
  readonly collection: string
  readonly commands: readonly string[]
  readonly rights: readonly string[]
}

const section = async () =>
  (await readFile('docs/mongodb-role.md', 'utf8')).split('\n## Schedules\n')[1]!.split('\n## ')[0]!
const listIn = (text: string) => [...text.matchAll(/[`']([\w.]+)[`']/g)].map(([, one]) => one!)

async function documented(kind: Kind): Promise<Row[]> {
  const table = (await section())
    .split(`commands of ${kind === 'owner' ? 'an owner' : 'a replica'}`)[1]!
    .split('\n\n')[0]!
  return [...table.matchAll(/^\| `([\w.]+)` \| (.+) \| (.+) \|$/gm)].map(([, collection, commands, rights]) => ({
    collection: collection!,
    commands: listIn(commands!),
    rights: listIn(rights!),
  }))
}

const RIGHTS: Readonly<Record<string, readonly string[]>> = {
  aggregate: ['find'],
  createIndexes: ['createIndex'],
  delete: ['remove'],
  explain: ['find'],
  find: ['find'],
  findAndModify: ['find', 'update'],
  insert: ['insert'],
  listIndexes: ['listIndexes'],
  update: ['find', 'update'],
}
const UPSERTS = ['replica update schedules.watch', 'replica findAndModify shedLock', 'owner update schedules']

function rightsOf(kind: Kind, commands: readonly string[], collection: string): string[] {
  const rights = commands.flatMap((command) => [
    ...RIGHTS[command]!,
    ...(UPSERTS.includes(`${kind} ${command} ${collection}`) ? ['insert'] : []),
  ])
  return [...new Set(rights)].sort()
}

const commandsOn = (sent: readonly string[], collection: string) =>
  sent.filter((one) => one.endsWith(` ${collection}`)).map((one) => one.split(' ')[0]!)

describe('the schedules in docs/mongodb-role.md', () => {
  test('whatever is sent stands there, with the rights that it needs and no other', async () => {
    const created = await commandsOfALife('create')
    for (const kind of ['replica', 'owner'] as const) {
      const rows = await documented(kind)
      expect(rows.map(({ collection }) => collection)).toEqual(COLLECTIONS_OF[kind])
      for (const { collection, commands, rights } of rows) {
        const sent = commandsOn(created[kind], collection)
        expect({ collection, sent: sent.filter((command) => !commands.includes(command)) }).toEqual({
          collection,
          sent: [],
        })
        // Which of two commands of the same rights is sent depends on how much there is to do.
        expect({ collection, rights: rightsOf(kind, sent, collection) }).toEqual({ collection, rights })
        expect(rightsOf(kind, commands, collection)).toEqual(rights)
      }
    }
    await client?.close()
    for (const name of COLLECTIONS) await database.db.collection(name).deleteMany()
    const checked = await commandsOfALife('check')
    expect(checked.replica.filter((command) => /create|drop|collMod/i.test(command))).toEqual([])
  })

  test('its role is for who is both', async () => {
    const role = [...(await section()).matchAll(/collection: '([\w.]+)' \},\s+actions: \[(.+)\]/g)]
    const rows = [...(await documented('replica')), ...(await documented('owner'))]
    expect(role.map(([, collection, actions]) => [collection, listIn(actions!)])).toEqual(
      COLLECTIONS_OF.replica.map((collection) => [
        collection,
        [...new Set(rows.filter((row) => row.collection === collection).flatMap((row) => row.rights))].sort(),
      ]),
    )
  })
})
