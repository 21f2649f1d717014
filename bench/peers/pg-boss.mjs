import pg from 'pg'
import { PgBoss } from 'pg-boss'
import { complaints } from './complaints.mjs'

const NAME = 'job'
const INSERT_BATCH = 1_000

export const server = 'postgres'

/** Batches and several workers, fetching on while batches are full, woken by NOTIFY: what its documentation offers for speed. */
const FAST = {
  boss: { max: 20, useListenNotify: true },
  queue: { notify: true },
  work: { batchSize: 500, burstWhenBatchFull: true, localConcurrency: 4, pollingIntervalSeconds: 0.5 },
}

export const SETTINGS = {
  /** One job every two seconds: single jobs are sent to it that far apart. */
  defaults: { pace: { noop: 4, steps: 1 }, gapMs: 2_200, boss: {}, queue: {}, work: {} },
  /** The handler gets 500 jobs and inserts their 500 next steps in one call: its author's batch, made by hand. */
  best: { pace: { noop: 15_000, steps: 2_500 }, ...FAST, nextInBatch: true },
  /** The same, but each job inserts its own next step. */
  bestOneByOne: { pace: { noop: 15_000, steps: 240 }, ...FAST },
}

export async function open(servers, space, setting, { produces = false } = {}) {
  const { boss: options, queue, work, nextInBatch = false } = SETTINGS[setting]
  const errors = complaints('pg-boss')
  const connectionString = servers.postgres.pgBoss
  const client = new pg.Client(connectionString)
  client.on('error', () => undefined)
  await client.connect()
  const background = produces ? { supervise: false, schedule: false } : options
  const boss = new PgBoss({ connectionString, schema: space, ...background })
  boss.on('error', (error) => errors.say(error.message))
  let started
  const start = () => {
    started ??= boss.start()
    return started
  }
  if (produces) {
    await start()
    await boss.createQueue(NAME, queue)
  }
  return {
    insertOne: (job) => boss.send(NAME, job),
    async insert(many) {
      for (let i = 0; i < many.length; i += INSERT_BATCH) {
        await boss.insert(
          NAME,
          many.slice(i, i + INSERT_BATCH).map((data) => ({ data })),
        )
      }
    },
    async work(visit) {
      const one = async ({ data }) => {
        const next = await visit(data)
        if (next && !nextInBatch) await boss.send(NAME, next)
        return next
      }
      const handler = async (jobs) => {
        const next = (await Promise.all(jobs.map(one))).filter(Boolean)
        if (nextInBatch && next.length > 0) {
          await boss.insert(
            NAME,
            next.map((data) => ({ data })),
          )
        }
      }
      await start()
      await boss.work(NAME, work, handler)
      return () => {
        errors.end()
        return boss.stop({ graceful: false })
      }
    },
    async pending() {
      const { rows } = await client.query(
        `select count(*)::int as n from "${space}".job where name = '${NAME}' and state < 'completed'`,
      )
      return rows[0].n
    },
    async drop() {
      await client.query("set client_min_messages = 'error'")
      await client.query(`drop schema if exists "${space}" cascade`)
    },
    async close() {
      if (started) await boss.stop({ graceful: false })
      await client.end()
    },
  }
}
