// A replica in a process of its own, for tests that kill one: `node scheduler-process.mjs <uri> <name>`.
import { MongoClient } from 'mongodb'
import { Replica } from '../../dist/index.js'
import { Schedules } from '../../dist/schedules/index.js'

const [uri, name] = process.argv.slice(2)
const client = await new MongoClient(uri).connect()
const db = client.db()
const effects = db.collection('effects')

async function work(_args, run) {
  const { insertedId } = await effects.insertOne({ run: run.id, schedule: run.schedule, fence: run.fence, by: name })
  await effects.updateOne({ _id: insertedId }, [{ $set: { begunAt: '$$NOW' } }])
  await new Promise((resolve) => setTimeout(resolve, 30))
  await effects.updateOne({ _id: insertedId }, [{ $set: { endedAt: '$$NOW' } }])
  run.count('worked')
}

const schedules = new Schedules({ db, name, lockTimeout: '6s', tasks: { work } })
const replica = new Replica({ db, lifecycles: schedules.lifecycles, name })
await replica.start()
process.stdout.write('ready\n')
process.on('SIGTERM', async () => {
  await replica.stop()
  await client.close()
})
