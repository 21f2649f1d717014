import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'
import { complaints } from './complaints.mjs'

const NAME = 'job'
const INSERT_BATCH = 1_000

export const server = 'postgres'

export const SETTINGS = {
  defaults: { pace: { noop: 1_200, steps: 200 }, options: {} },
  // The settings of the figures on its own page about performance: worker.graphile.org/docs/performance
  best: {
    pace: { noop: 18_000, steps: 230 },
    options: {
      concurrentJobs: 24,
      maxPoolSize: 25,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  },
}

export async function open(servers, space, setting) {
  const errors = complaints('graphile-worker')
  const logger = new Logger(() => (level, message) => {
    if (level === 'error') errors.say(message)
  })
  const connectionString = servers.postgres.graphileWorker
  const client = new pg.Client(connectionString)
  client.on('error', () => undefined)
  await client.connect()
  const utilities = await makeWorkerUtils({ connectionString, schema: space, logger })
  await utilities.migrate()
  return {
    insertOne: (job) => utilities.addJob(NAME, job),
    async insert(many) {
      for (let i = 0; i < many.length; i += INSERT_BATCH) {
        await utilities.addJobs(many.slice(i, i + INSERT_BATCH).map((payload) => ({ identifier: NAME, payload })))
      }
    },
    async work(visit) {
      const task = async (job, { addJob }) => {
        const next = await visit(job)
        if (next) await addJob(NAME, next)
      }
      const runner = await run({
        taskList: { [NAME]: task },
        preset: { worker: { connectionString, schema: space, logger, ...SETTINGS[setting].options } },
      })
      return () => {
        errors.end()
        return runner.stop()
      }
    },
    async pending() {
      const { rows } = await client.query(`select count(*)::int as n from "${space}"._private_jobs`)
      return rows[0].n
    },
    async drop() {
      await client.query("set client_min_messages = 'error'")
      await client.query(`drop schema if exists "${space}" cascade`)
    },
    async close() {
      await utilities.release()
      await client.end()
    },
  }
}
