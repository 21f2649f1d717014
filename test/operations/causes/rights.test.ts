import { readFile } from 'node:fs/promises'
import { describe, expect, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import { causes, type System, systemStatus } from '../../../src/operations/index.js'
import type { Census } from '../../../src/phases/index.js'
import { useDatabase } from '../../support/database.js'
import { without } from '../../support/refusing.js'
import { thing } from '../../support/thing.js'
import { BulkWorld } from '../bulk-world.js'
import { censusOf, groupOf } from './census.js'

const database = useDatabase()

/** A registered lifecycle with a census, and a user without any right on some collections. */
async function systemWithout(fields: Partial<Census>, ...names: string[]): Promise<System> {
  const { db } = database
  await BulkWorld.of(db)
  const { _id, ...found } = censusOf('thing', new Date(), fields)
  await db.collection<Document & { _id: string }>('phaselock.census').replaceOne({ _id }, found, { upsert: true })
  return { db: without(db, ...names), models: [thing.model] }
}

const parked = { parks: [groupOf()] }

describe('a user who may read only some of the collections', () => {
  test('gets the status without those that only who works needs, and what is unknown then', async () => {
    const names = ['operations', 'flows', 'duties', 'acks', 'limits', 'audit'].map((name) => `phaselock.${name}`)
    const system = await systemWithout(parked, ...names, 'schedules')
    const { causes: found, operations } = await systemStatus(system)
    expect(found.rows.map(({ kind }) => kind)).toContain('park')
    expect(found.rows.find(({ kind }) => kind === 'park')).toMatchObject({ trend: 'unknown', helped: [] })
    expect([...found.unread].sort()).toEqual(['audit', 'duties', 'flows', 'operations', 'schedules'])
    expect(found.quiet).toMatchObject({ perMinute: null })
    expect(operations).toEqual({ running: 0, waiting: 0, parked: 0 })
  })

  test('without the documents of replicas the trend of a cause is unknown, and so is the throughput', async () => {
    const system = await systemWithout(parked, 'phaselock.replicas')
    const { rows, quiet } = await causes(system)
    expect(rows.find(({ kind }) => kind === 'park')).toMatchObject({ trend: 'unknown' })
    expect(quiet).toMatchObject({ perMinute: null })
  })

  test('has all that is read by the role of operators, and by the list for those who only look', async () => {
    await systemWithout(parked)
    const client = new MongoClient(database.uri, { monitorCommands: true })
    const read = new Set<string>()
    client.on('commandStarted', ({ commandName, command }) => {
      if (['find', 'aggregate', 'count'].includes(commandName)) read.add(command[commandName])
    })
    await systemStatus({ db: client.db(database.db.databaseName), models: [thing.model] })
    await client.close()
    const page = await readFile('docs/mongodb-role.md', 'utf8')
    const [, role] = page.split("role: 'phaselock-operator'")
    const ofOperators = [...role!.matchAll(/collection: '([\w.]+)' \},\s+actions: \[(.+)\]/g)]
      .filter(([, , actions]) => actions!.includes("'find'"))
      .map(([, collection]) => collection!)
    const [, list] = /A user who only looks needs `find` on ([\s\S]+?)\. Only/.exec(page)!
    const lacking = (names: readonly string[]) => [...read].filter((name) => !names.includes(name))
    expect(read.size).toBeGreaterThan(5)
    expect(lacking(ofOperators)).toEqual([])
    expect([...list!.matchAll(/`([\w.]+)`/g)].map(([, name]) => name!).sort()).toEqual([...read].sort())
  })
})
