import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { lifecycleOf, Replica } from '../../../src/index.js'
import { Cluster, earlyRecovery } from '../../../src/kubernetes/index.js'
import { firstProcessAgeMs } from '../../../src/kubernetes/recovery/own-run.js'
import { CONTAINERS_COLLECTION } from '../../../src/kubernetes/recovery/run-records.js'
import { systemClock } from '../../../src/time/index.js'
import { eventually, useDatabase } from '../../support/database.js'
import { recordingLogger } from '../../support/thing.js'
import { describeWithCluster } from '../support/index.js'
import { untilMayGet } from '../support/rights.js'

const RIGHTS = [{ apiGroups: [''], resources: ['pods'], verbs: ['get', 'list', 'watch'] }]
const PROGRAM = fileURLToPath(new URL('replica-process.mjs', import.meta.url))
/** Some processes start at a time; the lockTimeout is far from it all the same. */
const SLOWLY = { timeoutMs: 180_000 }
const IMAGE = 'example.com/phaselock'

describeWithCluster('early recovery', (kubernetes) => {
  const database = useDatabase()
  const children: ChildProcess[] = []
  const replicas: Replica[] = []
  let admin: Cluster
  let namespace: string
  let kubeconfig: string
  let startedAt: string

  beforeEach(async () => {
    admin = Cluster.of({ name: 'test', kubeconfig: kubernetes().kubeconfigText })
    namespace = await kubernetes().namespace('recovery')
    const account = await kubernetes().serviceAccount(RIGHTS, { namespaces: [namespace] })
    await untilMayGet(account, podRef('any'))
    kubeconfig = account.kubeconfig
    const ageMs = (await firstProcessAgeMs())!
    startedAt = new Date(systemClock.now().getTime() - ageMs).toISOString().replace(/\.\d+Z$/, 'Z')
  })
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
    admin.close()
  })

  const documents = (phase: string) => database.db.collection<Document & { _id: string }>(`Thing${phase}`)
  const podRef = (name: string) => ({ apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace } })
  async function setStatus(name: string, status: object): Promise<void> {
    const http = { method: 'PATCH', body: { status }, contentType: 'application/merge-patch+json' } as const
    await admin.answerTo({ verb: 'patch', kind: podRef(name), namespace, object: name, subresource: 'status', http })
  }
  const containerStatus = (restartCount: number, states: object) => ({
    containerStatuses: [
      {
        name: 'main',
        image: IMAGE,
        imageID: '',
        ready: true,
        restartCount,
        state: { running: { startedAt } },
        ...states,
      },
    ],
  })
  const ended = () => ({ terminated: { exitCode: 137, reason: 'Error', startedAt, finishedAt: startedAt } })

  /** A pod that nobody schedules, so that its status is all the test's own: it runs, since this machine's first process. */
  async function pod(name: string): Promise<void> {
    const spec = { schedulerName: 'nobody', containers: [{ name: 'main', image: IMAGE }] }
    await kubernetes().make({ ...podRef(name), spec })
    await setStatus(name, { phase: 'Running', ...containerStatus(0, {}) })
  }

  /** A process in a pod that holds the document of its phase. */
  async function holder(podName: string, phase: string): Promise<{ identity: string; kill(): Promise<void> }> {
    await documents(phase).insertOne({ _id: 'a', phase, lockedAt: new Date(0) })
    const env = { ...process.env, POD_NAME: podName, POD_NAMESPACE: namespace }
    const child = spawn(process.execPath, [PROGRAM, database.uri, kubeconfig, phase], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env,
    })
    children.push(child)
    const lines = createInterface({ input: child.stdout! })
    const [identity] = await Promise.race([once(lines, 'line'), once(child, 'exit').then(() => ['it has ended'])])
    await eventually(async () => {
      expect((await documents(phase).findOne())?.['lockedBy']).toMatch(identity)
      const records = database.db.collection<{ _id: string }>(CONTAINERS_COLLECTION)
      expect(await records.countDocuments({ _id: identity })).toBe(1)
    }, SLOWLY)
    const kill = async () => {
      child.kill('SIGKILL')
      await once(child, 'exit')
    }
    return { identity, kill }
  }

  function survivor(phases: readonly string[], kubeconfigFile = kubeconfig): ReturnType<typeof recordingLogger> {
    const logger = recordingLogger()
    const lifecycles = phases.map((phase) =>
      lifecycleOf<{ _id: string }>()
        .define({
          name: `thing-${phase}`,
          collection: `Thing${phase}`,
          phases: { [phase]: { next: ['Done'] }, Done: { rest: true } },
          lockTimeout: '10m',
        } as never)
        .handle({ [phase]: async (_doc: unknown, step: any) => step.moveTo('Done') } as never),
    )
    const cluster = Cluster.of({ name: 'test', kubeconfig: { file: kubeconfigFile } })
    const alongside = [earlyRecovery({ cluster, pod: 'survivor', namespace, container: 'main', settle: '100ms' })]
    const replica = new Replica({ db: database.db, lifecycles, name: 'survivor', logger, doorbell: 'off', alongside })
    replicas.push(replica)
    void replica.start()
    return logger
  }
  const phaseOf = async (phase: string) => (await documents(phase).findOne())?.['phase']

  test('ends the leases of terminated and restarted containers, not those of deleted pods and lost nodes', async () => {
    const PHASES = ['Failed', 'First', 'Second', 'Deleted', 'Lost'] as const
    const POD_OF = {
      Failed: 'failed',
      First: 'restarted',
      Second: 'restarted',
      Deleted: 'deleted',
      Lost: 'lost',
    }
    for (const name of new Set(Object.values(POD_OF))) await pod(name)
    const holders = await Promise.all(PHASES.map(async (phase) => [phase, await holder(POD_OF[phase], phase)] as const))
    const logger = survivor(PHASES)
    for (const [, { kill }] of holders) await kill()
    // In this order, so that what says nothing has been heard before what says something.
    await kubernetes().admin.delete(podRef('deleted'))
    await setStatus('lost', { phase: 'Failed', reason: 'NodeLost', ...containerStatus(0, { state: ended() }) })
    await setStatus('failed', { phase: 'Failed', ...containerStatus(0, { state: ended() }) })
    await setStatus('restarted', containerStatus(1, { lastState: ended() }))
    for (const phase of ['Failed', 'First', 'Second']) await eventually(async () => (await phaseOf(phase)) === 'Done')
    for (const [phase, { identity }] of holders) {
      if (phase !== 'Deleted' && phase !== 'Lost') continue
      expect((await documents(phase).findOne())!['lockedBy']).toMatch(identity)
    }
    const ends = () => logger.lines.filter(({ message }) => /1 lease of (failed|restarted)~\w+ has ended/.test(message))
    await eventually(() => expect(ends()).toHaveLength(3))
  })

  test('without the right to read pods it says so once, and work goes on', async () => {
    await pod('survivor')
    const { kubeconfig: narrow } = await kubernetes().serviceAccount([], { namespaces: [namespace] })
    await documents('Alive').insertOne({ _id: 'a', phase: 'Alive', lockedAt: new Date(0) })
    const logger = survivor(['Alive'], narrow)
    const warned = (what: string) =>
      logger.lines.filter(({ level, message }) => level === 'warn' && message.includes(what))
    await eventually(() => {
      expect(warned('the pods are not watched')).toHaveLength(1)
      expect(warned('the container of this replica is not reported to others')).toHaveLength(1)
    })
    expect(warned('the right to list pods')[0]!.message).toMatch(`list pods in namespace ${namespace}`)
    await eventually(async () => (await phaseOf('Alive')) === 'Done')
  })

  test('believes no status of another run of its container', async () => {
    await pod('survivor')
    const old = new Date(Date.parse(startedAt) - 60_000).toISOString().replace(/\.\d+Z$/, 'Z')
    await setStatus('survivor', containerStatus(0, { state: { running: { startedAt: old } } }))
    const logger = survivor(['Alive'])
    const says = () => logger.lines.map(({ message }) => message)
    await eventually(() => expect(says()).toContainEqual(expect.stringMatching('no container main that began')))
    expect(await database.db.collection(CONTAINERS_COLLECTION).countDocuments()).toBe(0)
  })
})
