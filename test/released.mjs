/**
 * `MONGOMS_VERSION=8.0.13 node test/released.mjs [--members 3] [options of Jest]`: the first tier of tests on a released MongoDB, which
 * mongodb-memory-server downloads, standalone or as a replica set. Without tests that only the embedded engine can run: test/tiers.mjs.
 */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { MongoClient } from 'mongodb'
import { MongoMemoryReplSet, MongoMemoryServer } from 'mongodb-memory-server'
import { engineTests } from './tiers.mjs'

const given = process.argv.slice(2)
const at = given.indexOf('--members')
const members = at < 0 ? 1 : Number(given.splice(at, 2)[1])
const version = process.env.MONGOMS_VERSION
if (!version || !(members >= 1))
  throw new Error(`expected MONGOMS_VERSION and --members from 1, got ${version} and ${members}`)

// The same engine in all versions; before 7.0 the default of mongodb-memory-server keeps no journal.
const storageEngine = 'wiredTiger'
const server =
  members === 1
    ? await MongoMemoryServer.create({ instance: { storageEngine } })
    : await MongoMemoryReplSet.create({ replSet: { count: members, storageEngine } })
try {
  const client = await MongoClient.connect(server.getUri())
  const { version: got } = await client.db().admin().command({ buildInfo: 1 })
  const { primary, me } = await client.db().admin().command({ hello: 1 })
  await client.close()
  if (got !== version) throw new Error(`expected MongoDB ${version}, got ${got}`)
  // One address, so that the proxies of tests stand between it and the driver, which would ask a set for its members.
  const [address] = /[\d.]+:\d+/.exec(primary ?? me ?? server.getUri())
  const ignored = engineTests.map((path) => `--testPathIgnorePatterns=/test/${path}$`)
  console.log(`MongoDB ${got}, ${members} member(s), at ${address}; left out, because they need the embedded engine:`)
  console.log(engineTests.map((path) => `  test/${path}`).join('\n'))
  const { status } = spawnSync('npm', ['test', '--', ...given, ...ignored], {
    cwd: fileURLToPath(new URL('..', import.meta.url)),
    stdio: 'inherit',
    env: { ...process.env, MONGODB_URI: `mongodb://${address}/?directConnection=true` },
  })
  process.exitCode = status ?? 1
} finally {
  await server.stop()
}
