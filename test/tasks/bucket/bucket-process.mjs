// A replica in a process of its own: `node bucket-process.mjs <uri> <endpoint> <region> <secret> <name> [<n>]`. With n it
// kills itself in the middle of the nth step that deletes objects: they are deleted, and nobody has recorded it.
import { MongoClient } from 'mongodb'
import { bucketLifecycle } from 'phaselock-tasks'
import { Replica } from '../../../dist/index.js'

const [uri, endpoint, region, secretAccessKey, name, dieAt] = process.argv.slice(2)
const client = await new MongoClient(uri).connect()
const db = client.db()
const credentials = { accessKeyId: 'ours', secretAccessKey }
let left = Number(dieAt ?? Number.POSITIVE_INFINITY)

const wrap = (_lifecycle, _phase, handler) => async (doc, step) => {
  const outcome = await handler(doc, step)
  if (step.name === 'objects') left -= 1
  if (left <= 0) process.kill(process.pid, 'SIGKILL')
  return outcome
}

const storage = { here: { endpoint, region, credentials } }
const lifecycle = bucketLifecycle({ db, storage, keepFor: '0s', lockTimeout: '1m', pageSize: 250, wrap })
const replica = new Replica({ db, lifecycles: [lifecycle], name })
await replica.start()
process.stdout.write('ready\n')
