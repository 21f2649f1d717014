import { readFile } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { type CommandStartedEvent, type Db, type Document, MongoClient } from 'mongodb'
import { lifecycleOf, Replica, silentLogger } from 'phaselock'
import { type Embedder, embeddings, memory, mongoVectors, repositories } from 'phaselock-repositories'
import { SharedStore } from 'phaselock-state'
import { ConfigStore, defineConfig } from 'phaselock-state/config'
import { Logins } from 'phaselock-state/logins'
import { BadRow, csv, eachRow, importRows, quarantinedRows, removeRows, rowLoop } from 'phaselock-state/rows'
import * as v from 'valibot'
import { listConfigs, noteRefusal } from '../../packages/state/src/config/versions.js'
import { Keyring } from '../../packages/state/src/logins/keyring.js'
import { listProfiles, removeProfile, rotateSecrets } from '../../packages/state/src/logins/profiles.js'
import { MemoryRepository, useRepositories } from '../repositories/sync/support.js'
import { KEYS, key, profileFor, startCrm } from '../state/crm.js'
import { eventually } from '../support/database.js'

jest.setTimeout(120_000)

const ana = { by: 'ana' }

/** The right that each command needs; an upsert needs `insert` too. */
const RIGHTS: Readonly<Record<string, readonly string[]>> = {
  aggregate: ['find'],
  createIndexes: ['createIndex'],
  delete: ['remove'],
  distinct: ['find'],
  explain: ['find'],
  find: ['find'],
  insert: ['insert'],
  listIndexes: ['listIndexes'],
  update: ['find', 'update'],
}

function rightsOf(name: string, command: Document): readonly string[] {
  if (name === 'findAndModify')
    return ['find', command['remove'] ? 'remove' : 'update', ...(command['upsert'] ? ['insert'] : [])]
  const upserts = name === 'update' && (command['updates'] as Document[]).some(({ upsert }) => upsert)
  return [...(RIGHTS[name] ?? [`?${name}`]), ...(upserts ? ['insert'] : [])]
}

/** Rights by collection, in the order of the alphabet. */
type Rights = Record<string, string[]>

const sorted = (rights: ReadonlyMap<string, ReadonlySet<string>>): Rights =>
  Object.fromEntries([...rights].sort().map(([collection, some]) => [collection, [...some].sort()]))

let client: MongoClient | undefined
afterEach(async () => {
  await client?.close()
  client = undefined
})

/** A connection whose commands on these collections are noted as the rights that they need. */
function noted({ uri, db }: { uri: string; db: Db }, isOfPackage: (collection: string) => boolean) {
  const seen = new Map<string, Set<string>>()
  client = new MongoClient(uri, { monitorCommands: true })
  client.on('commandStarted', ({ commandName, command }: CommandStartedEvent) => {
    const about = commandName === 'explain' ? Object.values(command['explain'] as Document)[0] : command[commandName]
    if (typeof about !== 'string' || commandName === 'killCursors' || !isOfPackage(about)) return
    const rights = seen.get(about) ?? new Set()
    for (const right of rightsOf(commandName, command)) rights.add(right)
    seen.set(about, rights)
  })
  return { db: client.db(db.databaseName), rights: () => sorted(seen) }
}

const listIn = (text: string): string[] => [...text.matchAll(/[`']([\w.]+)[`']/g)].map(([, one]) => one!)

/** What docs/mongodb-role.md says of a package: in its table, and in its role for mongosh. */
async function documented(title: string): Promise<{ table: Rights; role: Rights }> {
  const [, after = ''] = (await readFile('docs/mongodb-role.md', 'utf8')).split(`\n## ${title}\n`)
  const [section = ''] = after.split('\n## ')
  const rowsBy = (pattern: RegExp): Rights =>
    Object.fromEntries([...section.matchAll(pattern)].map(([, collection, rights]) => [collection, listIn(rights!)]))
  return {
    table: rowsBy(/^\| `([\w.]+)` \| .+ \| (.+) \|$/gm),
    role: rowsBy(/collection: '([\w.]+)' \},\s+actions: \[(.+)\]/g),
  }
}

describe('docs/mongodb-role.md', () => {
  const { database, settled } = useRepositories()

  test('phaselock-state needs the rights that stand there and no others', async () => {
    const own = ['phaselock.state', 'phaselock.logins', 'phaselock.config', 'phaselock.rows', 'shedLock']
    const { db, rights } = noted(database, (name) => own.includes(name))
    const store = new SharedStore({ client: db })
    const values = store.of<number>('value', { ttl: '1m', layer: true })
    await values.set('a', 1)
    await values.update('a', (n = 0) => n + 1)
    await values.compareAndSet('b', null, 1)
    await values.getMany(['a', 'b'])
    await values.entry('a')
    expect(await values.getOrLoad('c', () => 7)).toBe(7)
    await values.delete('a')
    await database.db.collection('phaselock.state').updateMany({}, { $set: { expiresAt: new Date(0) } })
    expect(await store.removeExpired()).toBeGreaterThan(0)

    const crm = await startCrm()
    const logins = new Logins({ db, store, keys: KEYS })
    await logins.define(profileFor(crm.origin), ana)
    const { token } = await logins.context('crm', 'bo')
    await logins.refresh('crm', 'bo', { replacing: token })
    await rotateSecrets(db, Keyring.from(`k2=${key(2)},${KEYS}`))
    const place = { db, environment: 'default' }
    expect(await listProfiles(place)).toHaveLength(1)
    await removeProfile(place, 'crm')
    await crm.close()

    const mail = defineConfig({ name: 'mail', schema: v.object({ host: v.string() }), initial: { host: 'a' } })
    const config = new ConfigStore({ db, configs: [mail] })
    await config.start()
    await config.set(mail, { host: 'b' }, ana)
    await config.set(mail, { host: 'c' }, ana)
    await config.rollBack(mail, ana)
    await config.history(mail)
    await noteRefusal(place, 'mail', { by: 'api-1', version: 3, issues: ['no'] })
    expect(await listConfigs(place)).toMatchObject([{ refused: [{ by: 'api-1' }] }])
    await config.stop()

    await importRows(
      db,
      'n',
      csv(() => Readable.from('a\n1\n2\n')),
      ana,
    )
    const lifecycle = lifecycleOf<{ _id: string }>().define({
      name: 'import',
      collection: 'Import',
      phases: { Running: { next: ['Done'] }, Done: { rest: true } },
    })
    const each = () => {
      throw new BadRow('no')
    }
    const imports = lifecycle.handle({
      Running: async (doc, step) =>
        (await eachRow(doc, step, { rows: { db, name: 'n' }, each })) ?? step.moveTo('Done'),
    })
    const replica = new Replica({ db, lifecycles: [imports], logger: silentLogger, doorbell: 'off' })
    await replica.prepare()
    await imports.insert({ _id: 'i1' })
    await eventually(async () => {
      await replica.runOnce()
      expect(await imports.find('i1')).toMatchObject({ phase: 'Done' })
    })
    await replica.stop()
    expect(await quarantinedRows(db, 'n')).toHaveLength(2)
    const loop = rowLoop({ db, store, session: 's1' })
    await loop.begin('n')
    for await (const { row } of loop.rows()) expect(row).toHaveProperty('a')
    await loop.end()
    await removeRows(db, 'n')
    await store.close()

    const { table, role } = await documented('phaselock-state')
    expect(table).toEqual(rights())
    expect(role).toEqual(table)
  })

  test('phaselock-repositories needs the rights that stand there and no others', async () => {
    const elsewhere = /^(schedules|runs|schedules\.watch|shedLock|phaselock\.(?!vectors))/
    const { db, rights } = noted(database, (name) => !elsewhere.test(name))
    const origin = new MemoryRepository()
    origin.commit({ 'a.ts': 'one', 'b.ts': 'two' })
    const embedder: Embedder = {
      model: 'any',
      dimensions: 2,
      embed: async (texts) => texts.map((text) => [text.length, 1]),
    }
    const repos = repositories({
      ...{ db, store: memory(), embeddings: embeddings(embedder, { kept: mongoVectors(db) }), logger: silentLogger },
      sourceOf: () => origin.source(),
    })
    const replica = new Replica({ db, lifecycles: repos.lifecycles, logger: silentLogger, doorbell: 'off' })
    await replica.prepare()
    const one = { repos, replica }
    const schedule = { every: '6h' } as const
    await repos.create('r', { url: 'https://git.example/group/project', collection: 'code', schedule })
    expect(await settled(one, 'r')).toMatchObject({ status: 'completed' })
    origin.commit({ 'a.ts': 'one', 'c.ts': 'three' })
    await settled(one, 'r', await repos.sync('r', ana))
    await repos.update('r', { include: ['a.ts'] })
    for (let i = 0; i < 3; i += 1) await settled(one, 'r')
    await repos.list()
    await repos.show('r')
    expect(await repos.files('r')).not.toEqual([])
    expect(await repos.search('one')).not.toEqual([])
    await repos.sync('r', ana)
    await repos.cancel('r')
    await repos.remove('r')
    await eventually(async () => {
      await replica.runOnce()
      const documents = database.db.collection('Repository')
      await documents.updateMany({ lockedBy: { $exists: false } }, { $set: { lockedAt: new Date(0) } })
      expect(await documents.findOne({ phase: { $ne: 'Deleted' } })).toBeNull()
    })
    // Final documents are removed in the end.
    const ago = (path: string): Document => ({ $subtract: [path, 400 * 86_400_000] })
    for (const name of ['Repository', 'RepositorySync'])
      await database.db
        .collection(name)
        .updateMany({}, [{ $set: { lockedAt: ago('$lockedAt'), 'progress.since': ago('$progress.since') } }])
    await eventually(async () => {
      await replica.runOnce()
      for (const name of ['Repository', 'RepositorySync'])
        expect(await database.db.collection(name).countDocuments()).toBe(0)
    })
    await replica.stop()

    const { table, role } = await documented('phaselock-repositories')
    expect(table).toEqual(rights())
    expect(role).toEqual(table)
  })
})
