/** Web pages in a Kubernetes cluster: a ConfigMap and a Deployment each, made, waited for and removed again. */
import { setTimeout as sleep } from 'node:timers/promises'
import { lifecycleOf, Replica } from 'phaselock'
import { connectDatabase, renewalClient } from 'phaselock/database'
import { Cluster, type KubernetesObject, onCluster, watchObjects } from 'phaselock/kubernetes'

/** A page as its owner writes it. */
interface Page {
  _id: string
  state?: 'Running' | 'Deleted'
  text: string
}

const page = lifecycleOf<Page>().define({
  name: 'page',
  collection: 'Page',
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
})

const connection = await connectDatabase() // MONGODB_URI, else a local database
const renewals = await renewalClient(connection) // leases are renewed over a connection of their own
const { db } = connection
const cluster = Cluster.of({ name: 'example', kubeconfig: 'default' }) // KUBECONFIG, ~/.kube/config
const namespace = process.env['EXAMPLE_NAMESPACE'] ?? 'default'

/** What stands in the cluster for a page. */
const configMap = ({ _id, text }: Page): KubernetesObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: _id, namespace },
  data: { 'index.html': text },
})
const deployment = ({ _id }: Page): KubernetesObject => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: _id, namespace },
  spec: {
    selector: { matchLabels: { page: _id } },
    template: {
      metadata: { labels: { page: _id } },
      spec: {
        containers: [
          {
            name: 'web',
            image: 'nginxinc/nginx-unprivileged:stable',
            volumeMounts: [{ name: 'text', mountPath: '/usr/share/nginx/html' }],
          },
        ],
        volumes: [{ name: 'text', configMap: { name: _id } }],
      },
    },
  },
})

/** Each step may run again after a crash: what it makes is there already then, and stays as it is. */
const pages = page.handle({
  Creating: onCluster(
    (doc, step) => cluster.hold(doc, step, { name: 'page', collection: 'Page', db }),
    async (doc, step, held) => {
      if (step.name === undefined) {
        await held.ensure(configMap(doc))
        await held.ensure(deployment(doc))
        // A step that only looks: this one would write each time.
        return step.again({ step: 'ready' })
      }
      const readiness = await held.ready(deployment(doc))
      return readiness.done ? step.moveTo('Created') : step.wait(readiness.text)
    },
  ),

  Deleting: onCluster(
    (doc, step) => cluster.hold(doc, step, { name: 'page', collection: 'Page', db }),
    async (doc, step, held) => {
      // Foreground: gone when its pods are.
      const removals = [
        await held.remove(deployment(doc), { propagation: 'Foreground' }),
        await held.remove(configMap(doc)),
      ]
      for (const removal of removals) if (!removal.done) return step.wait(removal.text)
      return step.moveTo('Deleted')
    },
  ),
})

// A page goes on when its Deployment is ready or gone, instead of at the end of its pause.
pages.runAlongside(
  watchObjects({
    kinds: [{ apiVersion: 'apps/v1', kind: 'Deployment' }],
    clusters: () => [cluster],
    namespaces: () => [namespace],
  }),
)

const replica = new Replica({
  db,
  renewalDb: renewals.db(db.databaseName),
  lifecycles: [pages],
  observer: {
    stepEnded: ({ id, phase, to, step, outcome, reason }) =>
      console.log(`  ${id}: ${step ?? phase}: ${reason ?? (to === phase ? outcome : `goes to ${to}`)}`),
    ruled: ({ state, to }) => console.log(`  its owner wants ${state}: it goes to ${to}`),
  },
})
await replica.start()

const collection = db.collection<Page & { phase: string }>('Page')
const names = ['ann', 'bea'].map((name) => `${name}-${Date.now()}-${process.pid}`)

console.log(`two pages are inserted; they are made in namespace ${namespace}`)
await collection.insertMany(names.map((name) => ({ _id: name, phase: 'Creating', text: `<h1>${name}</h1>` })))
await everyOne('Created')

console.log('their owner does not want them any more')
for (const name of names) await pages.setState(name, 'Deleted')
await everyOne('Deleted')
console.log('nothing of them is left in the cluster')

await replica.stop()
cluster.close()
await connection.close()

/** Waits until all are in a phase, five minutes at most: a node may have to pull an image. */
async function everyOne(phase: string): Promise<void> {
  for (let tries = 0; tries < 3_000; tries += 1) {
    if ((await collection.countDocuments({ _id: { $in: names }, phase })) === names.length) return
    await sleep(100)
  }
  const found = await collection.find({ _id: { $in: names } }).toArray()
  throw new Error(`expected all to be ${phase} within 5 minutes, got ${JSON.stringify(found)}`)
}
