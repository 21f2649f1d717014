import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { lifecycleOf, Replica } from '../dist/index.js'
import { Cluster, onCluster, watchObjects } from '../dist/kubernetes/index.js'
import { startControlPlane } from '../test/kubernetes/control-plane/control-plane.mjs'
import { percentile, rounded } from './statistics.mjs'

const CERTIFICATE = { apiVersion: 'cert-manager.io/v1', kind: 'Certificate' }
const INGRESS = { apiVersion: 'networking.k8s.io/v1', kind: 'Ingress' }
const ISSUER = { apiVersion: 'cert-manager.io/v1', kind: 'Issuer' }
const NAMESPACE = { apiVersion: 'v1', kind: 'Namespace' }
const COLLECTION = 'Domain'
/** Issuers are made one by one, so that certificates become ready at all moments of a back-off pause. */
const FULL = { certificates: 60, pauseSeconds: 10, everyMs: 330 }
const QUICK = { certificates: 24, pauseSeconds: 5, everyMs: 220 }
const WITHIN_MS = 120_000

/**
 * From a certificate's Ready to the domain's Created: the API server's event, as a watch of the benchmark's own hears it, to the
 * moment in which a replica has recorded the phase; between them lie the wake, the look at the certificate and the creation
 * of the Ingress. Each domain waits in pauses of many seconds when its certificate becomes ready. With watches by one replica and
 * by three, and without.
 *
 * The cluster is that of KUBECONFIG (with cert-manager), else a control plane of the benchmark's own, built with Go.
 */
export async function run(server, { quick, progress }) {
  const size = quick ? QUICK : FULL
  const own = process.env.KUBECONFIG ? undefined : await startControlPlane({ note: progress })
  const cluster = Cluster.of({ name: 'bench', kubeconfig: own ? { file: own.kubeconfig } : 'default' })
  try {
    const measure = async (replicas, watched) => {
      progress(`${replicas} replica${replicas > 1 ? 's' : ''}, ${watched ? 'with' : 'without'} watches`)
      return domains({ server, cluster, size, replicas, watched })
    }
    const one = await measure(1, true)
    const three = await measure(3, true)
    const without = await measure(1, false)
    return {
      readyToCreatedP50Ms: one.p50Ms,
      readyToCreatedP95Ms: one.p95Ms,
      superfluousSteps: one.superfluous,
      threeReplicas: { p50Ms: three.p50Ms, p95Ms: three.p95Ms, superfluousSteps: three.superfluous },
      withoutWatches: { p50Ms: without.p50Ms, p95Ms: without.p95Ms },
      pauseMs: size.pauseSeconds * 1_000,
      certificates: size.certificates,
      wrong: one.wrong + three.wrong + without.wrong,
    }
  } finally {
    cluster.close()
    await own?.stop()
  }
}

async function domains({ server, cluster, size, replicas, watched }) {
  const db = server.database()
  const namespace = `bench-${randomBytes(4).toString('hex')}`
  await create(cluster, { ...NAMESPACE, metadata: { name: namespace } })
  const times = { ready: new Map(), created: new Map(), stepsAfter: new Map() }
  const over = new AbortController()
  const listening = listen(cluster, namespace, times, over.signal)
  const crew = Array.from({ length: replicas }, (_, i) =>
    replicaOf({ db, cluster, namespace, size, watched, times, i }),
  )
  try {
    for (const { replica } of crew) await replica.start()
    const ids = Array.from({ length: size.certificates }, (_, i) => `d${i}`)
    await crew[0].domain.insertMany(ids.map((_id) => ({ _id })))
    const waiting = { 'progress.waitingSince': { $exists: true } }
    await until(async () => (await db.collection(COLLECTION).countDocuments(waiting)) === ids.length, 'all to wait')
    // Until every pause is a long one: first they grow with the time waited.
    await sleep(3_000)
    for (const name of ids) {
      await create(cluster, { ...ISSUER, metadata: { name, namespace }, spec: { selfSigned: {} } })
      await sleep(size.everyMs)
    }
    await until(() => ids.every((id) => times.created.has(id) && times.ready.has(id)), 'every domain to be created')
    const tooks = ids.map((id) => times.created.get(id) - times.ready.get(id))
    // One step goes on; what a watch woke beside it found nothing new.
    const superfluous = ids.reduce((sum, id) => sum + Math.max(0, (times.stepsAfter.get(id) ?? 0) - 1), 0)
    const p = (share) => rounded(percentile(tooks, share), 1)
    return { p50Ms: p(0.5), p95Ms: p(0.95), superfluous, wrong: 0 }
  } catch (error) {
    if (error.name !== 'NotInTime') throw error
    console.error(error.message)
    return { p50Ms: null, p95Ms: null, superfluous: null, wrong: size.certificates - times.created.size }
  } finally {
    await Promise.all(crew.map(({ replica }) => replica.stop()))
    over.abort()
    await listening
    const http = { method: 'DELETE' }
    await cluster.answerTo({ verb: 'delete', kind: NAMESPACE, object: namespace, http })
  }
}

/** A domain as a task kind would have it: a certificate, then an Ingress. */
function replicaOf({ db, cluster, namespace, size, watched, times, i }) {
  const definition = lifecycleOf().define({
    name: `bench-${namespace.slice(-8)}`,
    collection: COLLECTION,
    phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
    lockTimeout: `${size.pauseSeconds}s`,
    backOff: { share: 1, patience: '1s' },
  })
  const lifecycle = { name: definition.name, collection: COLLECTION, db }
  const held = (doc, step) => cluster.hold(doc, step, lifecycle)
  const domain = definition.handle({
    Creating: onCluster(held, async (doc, step, mine) => {
      const metadata = { name: doc._id, namespace }
      if (step.name === undefined) {
        const issuerRef = { kind: 'Issuer', name: doc._id }
        const spec = { secretName: `${doc._id}-tls`, dnsNames: [`${doc._id}.example.com`], issuerRef }
        await mine.ensure({ ...CERTIFICATE, metadata, spec })
        return step.again({ step: 'certificate' })
      }
      if (times.ready.has(doc._id)) times.stepsAfter.set(doc._id, (times.stepsAfter.get(doc._id) ?? 0) + 1)
      const readiness = await mine.ready({ ...CERTIFICATE, metadata })
      if (!readiness.done) return step.wait(readiness.text)
      await mine.ensure({ ...INGRESS, metadata, spec: ingressSpec(doc._id) })
      return step.moveTo('Created')
    }),
  })
  if (watched) domain.runAlongside(watchObjects({ kinds: [CERTIFICATE, INGRESS], clusters: () => [cluster] }))
  const observer = {
    stepEnded: ({ id, to }) => {
      if (to === 'Created') times.created.set(id, performance.now())
    },
  }
  return { domain, replica: new Replica({ db, lifecycles: [domain], name: `bench-${i}`, observer }) }
}

const ingressSpec = (id) => ({
  defaultBackend: { service: { name: 'web', port: { number: 80 } } },
  tls: [{ hosts: [`${id}.example.com`], secretName: `${id}-tls` }],
})

/** Notes when each certificate became ready, by a watch that has nothing to do with the replicas'. */
async function listen(cluster, namespace, { ready }, signal) {
  const stream = await cluster.watchStream(CERTIFICATE, { namespace, signal })
  let rest = ''
  try {
    for await (const chunk of stream.setEncoding('utf8')) {
      const at = performance.now()
      const lines = (rest + chunk).split('\n')
      rest = lines.pop()
      for (const line of lines.filter(Boolean)) {
        const { metadata, status } = JSON.parse(line).object
        const isReady = status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True')
        if (isReady && !ready.has(metadata.name)) ready.set(metadata.name, at)
      }
    }
  } catch (error) {
    if (!signal.aborted) throw error
  }
}

async function create(cluster, object) {
  const { namespace } = object.metadata
  await cluster.answerTo({ verb: 'create', kind: object, namespace, http: { method: 'POST', body: object } })
}

async function until(check, what) {
  const end = performance.now() + WITHIN_MS
  while (!(await check())) {
    if (performance.now() > end) {
      throw Object.assign(new Error(`expected ${what} within ${WITHIN_MS / 1_000} s`), { name: 'NotInTime' })
    }
    await sleep(50)
  }
}
