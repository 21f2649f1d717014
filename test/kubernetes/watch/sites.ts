import { randomBytes } from 'node:crypto'
import { afterEach, expect } from '@jest/globals'
import type { Db } from 'mongodb'
import { lifecycleOf, type Outcome, Replica, type Step, type Woken } from '../../../src/index.js'
import {
  Cluster,
  type HeldCluster,
  type KubernetesObject,
  onCluster,
  type WatchOptions,
  watchObjects,
} from '../../../src/kubernetes/index.js'
import { eventually, useDatabase } from '../../support/database.js'
import { recordingLogger } from '../../support/thing.js'

export interface Site {
  _id: string
  state?: 'Deleted'
}

/** A name of its own for each test's lifecycle: they share a cluster. */
export const sites = () =>
  lifecycleOf<Site>().define({
    name: `site-${randomBytes(4).toString('hex')}`,
    collection: 'Site',
    phases: {
      Creating: { next: ['Created'] },
      Created: { rest: true },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true, keepFor: '1h' },
    },
    rules: [{ when: 'Deleted', from: ['Creating', 'Created'], moveTo: 'Deleting' }],
  })

export const CONFIG_MAP = { apiVersion: 'v1', kind: 'ConfigMap' }
export const CERTIFICATE = { apiVersion: 'cert-manager.io/v1', kind: 'Certificate' }

/** What a ConfigMap of these tests says of itself. */
export const verdictOf = (object: KubernetesObject): string =>
  (object['data'] as { verdict?: string } | undefined)?.verdict ?? 'waiting'

type CreatingStep = Step<'Created', Site>
type Ended = Promise<Outcome<'Created', Site>>
/** What happens when the object has been made. */
export type Waiting = (doc: Readonly<Site>, step: CreatingStep, held: HeldCluster) => Ended

export interface Rig {
  readonly definition: ReturnType<typeof sites>
  readonly cluster: Cluster
  /** The object that a document owns. */
  readonly ref: (doc: Readonly<Site>) => KubernetesObject
  readonly watch?: Partial<WatchOptions>
  /** Default: waits for the object's verdict `ready`, an hour at a time. */
  readonly waiting?: Waiting
  readonly name?: string
}

/** Documents that own one object each, and replicas that work on them. All is closed after each test. */
export function useSites() {
  const database = useDatabase()
  const opened: (() => unknown)[] = []
  afterEach(async () => {
    for (const close of opened.splice(0).reverse()) await close()
  })
  const collection = () => database.db.collection<Site & Record<string, unknown>>('Site')

  return {
    onEnd: (close: () => unknown) => void opened.push(close),
    clusterOf(kubeconfig: string, name = 'test'): Cluster {
      const cluster = Cluster.of({ name, kubeconfig })
      opened.push(() => cluster.close())
      return cluster
    },
    async started(rig: Rig) {
      const steps: string[] = []
      const woken: Woken[] = []
      const logger = recordingLogger()
      const site = bound(rig, database.db, steps)
      const { cluster, name = 'r' } = rig
      const kinds = [{ ...CONFIG_MAP, verdict: verdictOf }, CERTIFICATE]
      site.runAlongside(watchObjects({ kinds, clusters: () => [cluster], retryWithin: '1s', ...rig.watch }))
      const observer = { woken: (event: Woken) => void woken.push(event) }
      const replica = new Replica({ db: database.db, lifecycles: [site], name, logger, observer, grace: '0s' })
      opened.push(() => replica.stop())
      await replica.start()
      return { site, steps, woken, replica, log: () => logger.lines.map(({ message }) => message).join('\n') }
    },
    untilAsleep: (...ids: string[]) =>
      eventually(async () => {
        const asleep = { _id: { $in: ids }, lockedBy: null, 'progress.resumeAt': { $exists: true } }
        expect(await collection().countDocuments(asleep as object)).toBe(ids.length)
      }),
    untilIn: (phase: string, ...ids: string[]) =>
      eventually(async () => {
        const found = await collection()
          .find({ _id: { $in: ids } })
          .toArray()
        expect(found.map((doc) => doc['phase'])).toEqual(ids.map(() => phase))
      }),
  }
}

function bound({ definition, cluster, ref, waiting }: Rig, db: Db, steps: string[]) {
  const lifecycle = { name: definition.name, collection: 'Site', db }
  const held = (doc: Readonly<Site>, step: { fence: number; signal: AbortSignal; leaseLeftMs(): number }) =>
    cluster.hold(doc, step, lifecycle)
  async function untilReady(doc: Readonly<Site>, step: CreatingStep, mine: HeldCluster): Ended {
    const object = ref(doc)
    if (object.kind !== 'ConfigMap') {
      const readiness = await mine.ready(object)
      return readiness.done ? step.moveTo('Created') : step.wait(readiness.text, { for: '1h' })
    }
    const live = await mine.get(object)
    const verdict = live ? verdictOf(live) : 'gone'
    return verdict === 'ready' ? step.moveTo('Created') : step.wait(`it is ${verdict}`, { for: '1h' })
  }
  return definition.handle({
    Creating: onCluster(held, async (doc: Readonly<Site>, step: CreatingStep, mine): Ended => {
      steps.push(`${doc._id} ${step.name ?? 'make'}`)
      if (step.name === 'wait') return (waiting ?? untilReady)(doc, step, mine)
      await mine.ensure(ref(doc))
      return step.again({ step: 'wait' })
    }),
    Deleting: onCluster(held, async (doc: Readonly<Site>, step: Step<'Deleted', Site>, mine) => {
      steps.push(`${doc._id} remove`)
      const removal = await mine.remove(ref(doc))
      return removal.done ? step.moveTo('Deleted') : step.wait(removal.text, { for: '1h' })
    }),
  })
}
