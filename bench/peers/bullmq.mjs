import { Queue, Worker } from 'bullmq'
import { complaints } from './complaints.mjs'

const NAME = 'job'
const INSERT_BATCH = 500

export const server = 'redis'

export const SETTINGS = {
  defaults: { pace: { noop: 4_000, steps: 500 }, options: {} },
  // Concurrency for jobs that wait for something: its guide says 100 to 300. Finished jobs removed: its guide to production.
  best: { pace: { noop: 10_000, steps: 1_800 }, options: { concurrency: 300, removeOnComplete: { count: 0 } } },
  /** The same with Redis flushing to disk before each reply: the durability of the other servers here. */
  bestFsyncAlways: {
    pace: { noop: 8_000, steps: 1_500 },
    options: { concurrency: 300, removeOnComplete: { count: 0 } },
    redis: 'redisAlways',
  },
}

/**
 * A producer and worker in a namespace of its own. The adapters of all peers have these functions:
 * - `insert(jobs)`, `insertOne(job)`: by the library's own call for many and for one; a job is a small JSON object
 * - `work(visit)`: starts a worker that calls `visit(job)` for each and, if that returns a job, inserts it as the next
 *   step; resolves to a function that stops the worker without waiting for running jobs
 * - `pending()`: how many jobs the database doesn't know as finished
 * - `drop()`: removes the namespace; `close()`: ends the connections
 */
export async function open(servers, space, setting) {
  const { options, redis = 'redis' } = SETTINGS[setting]
  const { host, port, password } = servers[redis]
  const errors = complaints('bullmq')
  const connection = { host, port, password, maxRetriesPerRequest: null }
  const queue = new Queue(NAME, { connection, prefix: space })
  queue.on('error', (error) => errors.say(error.message))
  await queue.waitUntilReady()
  return {
    insertOne: (job) => queue.add(NAME, job),
    async insert(many) {
      for (let i = 0; i < many.length; i += INSERT_BATCH) {
        await queue.addBulk(many.slice(i, i + INSERT_BATCH).map((data) => ({ name: NAME, data })))
      }
    },
    async work(visit) {
      const handler = async ({ data }) => {
        const next = await visit(data)
        if (next) await queue.add(NAME, next)
      }
      const worker = new Worker(NAME, handler, { connection, prefix: space, ...options })
      worker.on('error', (error) => errors.say(error.message))
      await worker.waitUntilReady()
      return () => {
        errors.end()
        return worker.close(true)
      }
    },
    async pending() {
      const counts = await queue.getJobCounts('active', 'waiting', 'delayed', 'prioritized')
      return Object.values(counts).reduce((sum, count) => sum + count, 0)
    },
    drop: () => queue.obliterate({ force: true }),
    close: () => queue.close(),
  }
}
