import { existsSync } from 'node:fs'
import { describe, expect, it } from '@jest/globals'
import * as installed from '../../packages/local-database/src/index.js'
import { connectWith } from '../../src/database/connect.js'
import { connectDatabase, NoDatabase } from '../../src/database/index.js'
import { eventually } from '../support/database.js'
import { useLocalDatabase } from '../support/database-local.js'

const local = useLocalDatabase()

const refused = async (connecting: Promise<unknown>): Promise<NoDatabase> => {
  const error = await connecting.catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(NoDatabase)
  return error as NoDatabase
}

describe('without MONGODB_URI', () => {
  it.each([
    ['in a pod', { KUBERNETES_SERVICE_HOST: '10.0.0.1' }, /in a pod \(KUBERNETES_SERVICE_HOST is set\)/],
    ['with NODE_ENV=production', { NODE_ENV: 'production' }, /with NODE_ENV=production/],
  ])('%s no local database is started, nor looked for', async (_where, more, why) => {
    const { log, dataDir } = local()
    const env = { ...local().env, ...more }
    const { message, tried } = await refused(
      connectWith({ dataDir, env, log }, () => Promise.reject(new Error('was looked for'))),
    )
    expect(message).toMatch(
      /^expected MONGODB_URI to name a MongoDB server, but it is not set; a local database is for/,
    )
    expect(message).toMatch(why)
    expect(message).toContain('set MONGODB_URI, for example mongodb://')
    expect(tried).toEqual([])
    expect(existsSync(dataDir)).toBe(false)
  })

  it('what only reads starts none and creates nothing, and uses one that runs', async () => {
    const { dataDir } = local()
    const { message } = await refused(local().connect({ onlyJoin: true }))
    expect(message).toMatch(
      /^expected MONGODB_URI .* it is not set; no local database is running in .*data, and this command starts none/,
    )
    expect(existsSync(dataDir)).toBe(false)
    const running = await local().connect()
    await running.db.collection('a').insertOne({ n: 1 })
    const reading = await local().connect({ onlyJoin: true })
    expect(reading.uri).toBe(running.uri)
    expect(await reading.db.collection('a').countDocuments()).toBe(1)
  })

  it('what only reads starts none on a folder with data either', async () => {
    await (await local().connect()).close()
    await eventually(async () => expect((await local().state()).keeper).toBeUndefined())
    await refused(local().connect({ onlyJoin: true }))
    expect((await local().state()).keeper).toBeUndefined()
  })

  it('says which package is missing, and what to do instead', async () => {
    const { log, dataDir, env } = local()
    const { message } = await refused(connectWith({ dataDir, env, log }, async () => undefined))
    expect(message.split('\n')).toEqual([
      'expected MONGODB_URI to name a MongoDB server, but it is not set; the local database package, phaselock-local-database, is not installed',
      'To fix this: set MONGODB_URI, for example mongodb://127.0.0.1:27017/phaselock; for development: npm install --save-dev phaselock-local-database',
    ])
  })

  it('finds the package where it is installed', async () => {
    const { dataDir, env, log } = local()
    const connection = local().keep(await connectDatabase({ dataDir, env, log }))
    expect(connection.source).toBe('embedded')
    // That it has what phaselock declares of it, the compiler checks here.
    local().keep(await connectWith({ dataDir, env, log, onlyJoin: true }, async () => installed))
  })
})
