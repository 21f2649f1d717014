// A replica in a process of its own, for a test that pauses it. It prints how each of its steps in the cluster has ended.
import { MongoClient } from 'mongodb'
import { lifecycleOf, Replica } from '../../dist/index.js'
import { Cluster } from '../../dist/kubernetes/index.js'

const [uri, kubeconfig, definition, namespace] = process.argv.slice(2)
const client = await new MongoClient(uri).connect()
const db = client.db()
const cluster = Cluster.of({ name: 'test', kubeconfig })

async function Creating(doc, step) {
  const held = cluster.hold(doc, step, { name: 'page', collection: 'Page', db })
  try {
    await held.ensure({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: doc._id, namespace } })
    process.stdout.write(`${doc._id} made\n`)
    return step.moveTo('Created')
  } catch (error) {
    process.stdout.write(`${doc._id} ${error.name}\n`)
    throw error
  }
}

const page = lifecycleOf().define(JSON.parse(definition))
const Deleting = async (_doc, step) => step.moveTo('Deleted')
const replica = new Replica({ db, lifecycles: [page.handle({ Creating, Deleting })], name: 'paused', doorbell: 'off' })
await replica.start()
