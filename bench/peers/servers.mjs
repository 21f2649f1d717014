import { Redis } from 'ioredis'
import { MongoClient } from 'mongodb'
import { startPostgres } from '../../tools/servers/postgres.mjs'
import { startRedis } from '../../tools/servers/redis.mjs'
import { query } from '../postgres-query.mjs'
import { redisAddress, serverGroup } from '../server-group.mjs'

/** One database for each of them, so that statements can be told apart. */
const POSTGRES_DATABASES = { pgBoss: 'pg_boss', graphileWorker: 'graphile_worker' }
/** Statements counted by the server: what tells how busy an idle worker is. */
const POSTGRES_SETTINGS = { shared_preload_libraries: 'pg_stat_statements', 'pg_stat_statements.max': 10_000 }
/** Commands of drivers and of our own counting, not of work. */
const NOT_COUNTED = {
  redis: /^(info|auth|hello|client|quit|ping|config)/,
  mongo: /^(hello|isMaster|ismaster|ping|serverStatus|buildInfo|buildinfo|endSessions|saslStart|saslContinue)$/,
}

/**
 * The servers of the peers, durable as in production: PostgreSQL with fsync and synchronous commits, Redis with the
 * append-only file flushed once a second (what BullMQ's guide recommends) and a second one that flushes before each
 * reply; the MongoDB server is the benchmark's own, the same for Agenda and Phaselock.
 * One that isn't installed is left out and said so; with CI=true that is an error.
 */
export async function startServers(mongoUri, progress) {
  const { optional, stop } = serverGroup(progress)
  try {
    const postgres = await optional(() => startPostgres({ settings: POSTGRES_SETTINGS }))
    const redis = await optional(startRedis)
    const redisAlways = redis && (await optional(() => startRedis({ persistence: 'always' })))
    return {
      addresses: {
        mongo: mongoUri,
        ...(redis ? { redis: redisAddress(redis), redisAlways: redisAddress(redisAlways) } : {}),
        ...(postgres ? { postgres: await postgresDatabases(postgres.url) } : {}),
      },
      commands: {
        agenda: mongoCommands(mongoUri),
        phaselock: mongoCommands(mongoUri),
        bullmq: redis && redisCommands(redis.url),
        'pg-boss': postgres && postgresCommands(postgres.url, POSTGRES_DATABASES.pgBoss),
        'graphile-worker': postgres && postgresCommands(postgres.url, POSTGRES_DATABASES.graphileWorker),
      },
      versions: {
        ...(postgres ? { postgres: await postgresVersion(postgres.url) } : {}),
        ...(redis ? { redis: await redisVersion(redis.url) } : {}),
      },
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

async function postgresDatabases(url) {
  const urls = {}
  for (const [name, database] of Object.entries(POSTGRES_DATABASES)) {
    await query(url, `create database ${database}`)
    urls[name] = url.replace(/\/postgres$/, `/${database}`)
  }
  await query(url, 'create extension pg_stat_statements')
  return urls
}

const postgresCommands = (url, database) => async () => {
  const text = `select coalesce(sum(calls), 0)::int as calls from pg_stat_statements s
                join pg_database d on d.oid = s.dbid where d.datname = $1`
  const [row] = await query(url, text, [database])
  return row.calls
}

const postgresVersion = async (url) => (await query(url, 'show server_version'))[0].server_version.split(' ')[0]

const withRedis = async (url, read) => {
  const client = new Redis(url)
  try {
    return await read(client)
  } finally {
    client.disconnect()
  }
}

const redisCommands = (url) => () =>
  withRedis(url, async (client) => {
    const counts = [...(await client.info('commandstats')).matchAll(/cmdstat_([^:]+):calls=(\d+)/g)]
    return sum(counts.filter(([, name]) => !NOT_COUNTED.redis.test(name)).map(([, , calls]) => Number(calls)))
  })

const redisVersion = (url) =>
  withRedis(url, async (client) => /redis_version:(\S+)/.exec(await client.info('server'))?.[1] ?? 'unknown')

const mongoCommands = (uri) => async () => {
  const client = new MongoClient(uri)
  try {
    const { metrics } = await client.db('admin').command({ serverStatus: 1 })
    const counted = Object.entries(metrics.commands).filter(([name]) => !NOT_COUNTED.mongo.test(name))
    return sum(counted.map(([, command]) => Number(command.total ?? 0)))
  } finally {
    await client.close()
  }
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0)
