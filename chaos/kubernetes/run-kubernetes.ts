import { fileURLToPath } from 'node:url'
import { type CleanUp, Interrupted, withCleanUps } from '../../dist/cli/demo/clean-ups.js'
import { openDemoDatabase } from '../../dist/cli/demo/demo-database.js'
import { ReplicaFailed } from '../../dist/cli/processes/replica-process.js'
import { sleep, systemClock } from '../../dist/time/index.js'
import { Fleet } from '../proof/fleet.ts'
import type { Screen } from '../proof/screen.ts'
import { waitFor } from '../proof/wait-for.ts'
import { openDemoCluster } from './demo-cluster.ts'
import { Owner, type Wanted } from './owner.ts'
import { Playground } from './playground.ts'
import type { KubernetesReplicaConfig } from './replica-process.ts'
import { judged, type KubernetesDemoResult } from './result.ts'
import { TIMED, Timing, type Until } from './timing.ts'
import { Witness } from './witness.ts'

const PROGRAM = fileURLToPath(new URL('./replica-process.ts', import.meta.url))
/** Four documents in five are domains. */
const DOMAINS_SHARE = 0.8
/** Long enough that a busy machine doesn't cost a lease. */
const LOCK_TIMEOUT_MS = 10_000
/** The kill comes once this share of the documents has arrived, and the replica holds some. */
const KILLED_AT_SHARE = 0.2
/** The owner of all documents except those that are timed. */
const SHOP = 'shop'
/** Far more than anything needs. */
const STAGE_WITHIN_MS = 900_000
/** Time for controllers to remove the dependents of what was removed. */
const CLEARED_WITHIN_MS = 300_000
/** By then what a process has sent has taken effect. */
const ARRIVED_WITHIN_MS = 100
const EXAMPLES = 10

export interface KubernetesDemoOptions {
  readonly documents: number
  readonly screen: Screen
  /** Ends the run early; everything is cleaned up, then `Interrupted` is thrown. */
  readonly signal: AbortSignal
}

export interface KubernetesDemoReport {
  readonly result: KubernetesDemoResult
  /** For what is off: the first few cases, and what the replicas logged. */
  readonly evidence: readonly string[]
}

/**
 * Runs the demo in its own database and namespace, and leaves nothing behind: no process, no data, no object.
 * @throws NoCluster; ReplicaFailed; Interrupted; what connectDatabase and the API server throw
 */
export const runKubernetes = (options: KubernetesDemoOptions): Promise<KubernetesDemoReport> =>
  withCleanUps(options.signal, (atEnd) => run(options, atEnd))

async function run(
  { documents, screen, signal }: KubernetesDemoOptions,
  atEnd: (cleanUp: CleanUp) => void,
): Promise<KubernetesDemoReport> {
  const cluster = await openDemoCluster((text) => screen.note(text))
  atEnd(() => cluster.close())
  screen.note(`Kubernetes ${cluster.version}`)
  const playground = new Playground(cluster)
  atEnd(() => playground.remove())
  await playground.admit(SHOP)
  await playground.issueFor(SHOP)
  const database = await openDemoDatabase((text) => screen.note(text))
  atEnd(() => database.close())
  const { connection, name } = database
  const owner = await Owner.connect(connection.uri, name)
  atEnd(() => owner.close())
  const witness = await Witness.start(cluster, name)
  atEnd(() => witness.stop())
  /** When each domain reached Created, by the clock's monotonic time. */
  const createdMs = new Map<string, number>()
  const config: Omit<KubernetesReplicaConfig, 'name'> = {
    uri: connection.uri,
    database: name,
    kubeconfig: cluster.config.exportConfig(),
    namespaceRule: playground.rule,
    lockTimeoutMs: LOCK_TIMEOUT_MS,
    watches: true,
  }
  const fleet = new Fleet([PROGRAM], config, (news) => {
    if (news.kind !== 'moved' || news.lifecycle !== 'runtime-domain' || news.to !== 'Created') return
    createdMs.set(news.id, systemClock.monotonicMs())
  })
  atEnd(() => fleet.end())

  const until: Until = (what, forMs = STAGE_WITHIN_MS) => {
    const look = async () => {
      if (signal.aborted) throw new Interrupted()
      const failure = fleet.failure()
      if (failure) throw new ReplicaFailed('of the demo', failure)
      return await what()
    }
    return waitFor(look, { forMs, everyMs: 100 })
  }
  const allArrive = (state: Wanted) =>
    until(async () => {
      const arrived = await owner.arrived(state)
      screen.progress(arrived, owner.count)
      return arrived === owner.count
    })
  const timing = new Timing({ owner, playground, witness, createdMs, until })

  const [a] = await Promise.all([fleet.start('a'), fleet.start('b'), fleet.start('c')])
  const domains = Math.round(documents * DOMAINS_SHARE)
  screen.stage(`${domains} domains and ${documents - domains} instances come in`)
  await Promise.all([
    owner.insertDomains(Array.from({ length: domains }, () => SHOP)),
    owner.insertInstances(documents - domains, SHOP),
  ])
  const held = await until(async () => {
    if ((await owner.arrived('Running')) < documents * KILLED_AT_SHARE) return false
    // It is paused before it is killed: so what is counted is what it holds then.
    a.pause()
    await sleep(ARRIVED_WITHIN_MS)
    const leases = await owner.heldBy(a.name)
    if (leases === 0) a.resume()
    return leases > 0 && leases
  })
  a.kill()
  await a.ended
  const leasesAtKill = held ?? 0
  screen.stage(`kill -9 of replica a with ${leasesAtKill} leases; d takes its place`)
  await fleet.start('d')
  await allArrive('Running')
  screen.stage('all are to stop')
  await owner.want('Stopped')
  await allArrive('Stopped')
  screen.stage('all are to be deleted')
  await owner.want('Deleted')
  await allArrive('Deleted')

  screen.stage(`${TIMED} domains whose certificates take a while are timed, with watches`)
  const withWatches = await timing.run('with')
  for (const replica of fleet.living) replica.stop()
  await Promise.all(fleet.replicas.map((replica) => replica.ended))
  screen.stage(`and ${TIMED} without`)
  await Promise.all(['e', 'f'].map((replica) => fleet.start(replica, { watches: false })))
  const withoutWatches = await timing.run('without')
  screen.stage('and deleted')
  await owner.want('Deleted')
  await allArrive('Deleted')
  const lost = await owner.missing('Deleted')
  await until(async () => (await playground.leftOver()).length === 0, CLEARED_WITHIN_MS)
  const [leftOver, madeTwice] = [await playground.leftOver(), witness.madeTwice()]
  const result = judged(
    {
      documents: owner.count,
      domains: owner.domains.length,
      instances: owner.instances.length,
      objects: witness.made,
      lost: lost.length,
      madeTwice: madeTwice.length,
      leftOver: leftOver.length,
      leasesAtKill,
      readyToCreatedMs: { withWatches, withoutWatches },
      kubernetes: cluster.version,
      lockTimeoutSeconds: LOCK_TIMEOUT_MS / 1_000,
      seconds: screen.seconds,
    },
    fleet.slowness(),
  )
  const examples = [lost, madeTwice, leftOver].flatMap((cases) => cases.slice(0, EXAMPLES))
  return { result, evidence: result.verdict === 'shown' ? [] : [...examples, ...fleet.lastWords()] }
}
