import { MongoBackend } from '@agendajs/mongo-backend'
import { Agenda } from 'agenda'
import { MongoClient } from 'mongodb'
import { complaints } from './complaints.mjs'

const NAME = 'job'
/** It has no insert of many: so many `now()` at once. */
const INSERTS_AT_ONCE = 100

export const server = 'mongo'

/** How it is set, and what it is expected to do in a second (jobs; documents of six steps): that sizes a round. */
export const SETTINGS = {
  defaults: { pace: { noop: 400, steps: 50 }, options: {} },
  // Its README names these options and no values; these were the best of those tried.
  best: {
    pace: { noop: 500, steps: 60 },
    options: { processEvery: 1_000, maxConcurrency: 100, defaultConcurrency: 100 },
  },
}

/** @returns a producer and worker on a database of its own; see bullmq.mjs for what each function means */
export async function open(servers, space, setting) {
  const errors = complaints('agenda')
  const client = await new MongoClient(servers.mongo).connect()
  const db = client.db(space)
  const agenda = new Agenda({ backend: new MongoBackend({ mongo: db }), ...SETTINGS[setting].options })
  agenda.on('error', (error) => errors.say(error.message))
  await agenda.ready
  const jobs = db.collection('agendaJobs')
  return {
    insertOne: (job) => agenda.now(NAME, job),
    async insert(many) {
      for (let i = 0; i < many.length; i += INSERTS_AT_ONCE) {
        await Promise.all(many.slice(i, i + INSERTS_AT_ONCE).map((job) => agenda.now(NAME, job)))
      }
    },
    async work(visit) {
      agenda.define(NAME, async ({ attrs }) => {
        const next = await visit(attrs.data)
        if (next) await agenda.now(NAME, next)
      })
      await agenda.start()
      return () => {
        errors.end()
        return agenda.stop()
      }
    },
    pending: () => jobs.countDocuments({ $or: [{ lastFinishedAt: null }, { lockedAt: { $ne: null } }] }),
    drop: () => db.dropDatabase(),
    close() {
      errors.end()
      return client.close()
    },
  }
}
