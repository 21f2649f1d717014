// A replica in a process of its own, which takes a document and never ends its step. POD_NAME and POD_NAMESPACE say where it is.
import { MongoClient } from 'mongodb'
import { lifecycleOf, Replica } from '../../../dist/index.js'
import { Cluster, earlyRecovery } from '../../../dist/kubernetes/index.js'

const [uri, kubeconfig, phase] = process.argv.slice(2)
const client = await new MongoClient(uri).connect()
const lifecycle = lifecycleOf().define({
  name: `thing-${phase}`,
  collection: `Thing${phase}`,
  phases: { [phase]: { next: ['Done'] }, Done: { rest: true } },
  lockTimeout: '10m',
})
const cluster = Cluster.of({ name: 'test', kubeconfig: { file: kubeconfig } })
const replica = new Replica({
  db: client.db(),
  lifecycles: [lifecycle.handle({ [phase]: () => new Promise(() => undefined) })],
  name: process.env.POD_NAME,
  doorbell: 'off',
  alongside: [earlyRecovery({ cluster, container: 'main', settle: '100ms' })],
})
await replica.start()
process.stdout.write(`${replica.identity}\n`)
