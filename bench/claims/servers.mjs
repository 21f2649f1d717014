import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { connectDatabase } from '../../dist/database/index.js'
import { startPostgres } from '../../tools/servers/postgres.mjs'
import { startRedis } from '../../tools/servers/redis.mjs'
import { redisAddress, serverGroup } from '../server-group.mjs'

const BACK_WITHIN_MS = 60_000
const LOOK_EVERY_MS = 50

/**
 * The servers, each of which can be killed and started again on its data: a local MongoDB engine, PostgreSQL with fsync
 * and synchronous commits, Redis with the append-only file, and a second Redis as it comes, with snapshots only.
 * One that isn't installed is left out and said so; with CI=true that is an error.
 */
export async function startServers(progress) {
  const { add, optional, stop } = serverGroup(progress)
  try {
    const mongo = await add(startMongo)
    const postgres = await optional(startPostgres)
    const redis = await optional(startRedis)
    const redisSnapshots = redis && (await optional(() => startRedis({ persistence: 'snapshots' })))
    return {
      addresses: {
        mongo: mongo.uri,
        ...(postgres ? { postgres: postgres.url } : {}),
        ...(redis ? { redis: redisAddress(redis), redisSnapshots: redisAddress(redisSnapshots) } : {}),
      },
      /** name -> kills the server with `kill -9` and starts it again on its data and port. */
      crash: {
        mongo: mongo.crash,
        postgres: () => crashAndRestart(postgres),
        redis: () => crashAndRestart(redis),
        redisSnapshots: () => crashAndRestart(redisSnapshots),
      },
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

async function crashAndRestart(server) {
  await server.kill9()
  await server.restart()
}

/** A local engine whose keeper starts it again on its port when it is killed. */
async function startMongo() {
  const dataDir = await mkdtemp(join(tmpdir(), 'phaselock-claims-'))
  const env = { ...process.env }
  delete env.MONGODB_URI
  const connection = await connectDatabase({ dataDir, env, log: () => undefined })
  const state = async () => JSON.parse(await readFile(join(dataDir, 'engine.json'), 'utf8').catch(() => '{}'))
  const until = async (condition) => {
    for (let waitedMs = 0; !(await condition()); waitedMs += LOOK_EVERY_MS) {
      if (waitedMs > BACK_WITHIN_MS) throw new Error(`the MongoDB engine did not end or come back: ${dataDir}`)
      await sleep(LOOK_EVERY_MS)
    }
  }
  return {
    uri: connection.uri,
    async crash() {
      const { engine } = await state()
      process.kill(engine.pid, 'SIGKILL')
      await until(async () => ![undefined, engine.pid].includes((await state()).engine?.pid))
      await until(() =>
        connection.db.command({ ping: 1 }).then(
          () => true,
          () => false,
        ),
      )
    },
    async stop() {
      await connection.close()
      await until(async () => !(await state()).keeper)
      await rm(dataDir, { recursive: true, force: true, maxRetries: 10 })
    },
  }
}
