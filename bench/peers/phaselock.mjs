import { connectDatabase, renewalClient } from '../../dist/database/index.js'
import { lifecycleOf, Replica } from '../../dist/index.js'

const INSERT_BATCH = 1_000

export const server = 'mongo'

/** Its throughput on a backlog is taken as bench/steps.mjs and noop.mjs take it; here it only meets single jobs and streams. */
export const SETTINGS = { defaults: { pace: { noop: 8_000 } } }

const jobs = lifecycleOf().define({
  name: 'job',
  collection: 'Job',
  phases: { Queued: { next: ['Done'] }, Done: { rest: true } },
})

export async function open(servers, space, _setting) {
  const connection = await connectDatabase({ uri: servers.mongo, database: space, env: {}, log: () => undefined })
  const renewals = await renewalClient(connection)
  const owner = jobs.handle({ Queued: async (_doc, step) => step.moveTo('Done') }).attach(connection.db)
  return {
    insertOne: (job) => owner.insert(job),
    async insert(many) {
      for (let i = 0; i < many.length; i += INSERT_BATCH) await owner.insertMany(many.slice(i, i + INSERT_BATCH))
    },
    async work(visit) {
      const lifecycle = jobs.handle({
        async Queued(doc, step) {
          await visit(doc)
          return step.moveTo('Done')
        },
      })
      const replica = new Replica({
        db: connection.db,
        renewalDb: renewals.db(connection.db.databaseName),
        lifecycles: [lifecycle],
        grace: '0s',
      })
      await replica.start()
      return () => replica.stop()
    },
    pending: () => connection.db.collection('Job').countDocuments({ phase: 'Queued' }),
    drop: () => connection.db.dropDatabase(),
    close: () => connection.close(),
  }
}
