import { type Informer, type KubernetesObject, makeInformer } from '@kubernetes/client-node'
import { type Clock, sleep, systemClock } from '../../dist/time/index.js'
import type { DemoCluster } from './demo-cluster.ts'
import { CERTIFICATE, type Kind, MADE } from './playground.ts'

const AGAIN_AFTER_MS = 200
const DOCUMENT_LABEL = 'phaselock.dev/document'
const DATABASE = 'phaselock.dev/database'
const OURS = 'app.kubernetes.io/managed-by=phaselock'

interface WithStatus extends KubernetesObject {
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] }
}

/** Watches what is made for the documents of one database, with watches independent of Phaselock's own. */
export class Witness {
  /** The uids of each object by kind and name: with more than one it was made more than once. */
  private readonly uids = new Map<string, Set<string>>()
  private readonly readyMs = new Map<string, number>()
  private readonly informers: Informer<KubernetesObject>[] = []
  private over = false
  private readonly database: string
  private readonly clock: Clock

  private constructor(database: string, clock: Clock) {
    this.database = database
    this.clock = clock
  }

  static async start(cluster: DemoCluster, database: string, clock: Clock = systemClock): Promise<Witness> {
    const witness = new Witness(database, clock)
    await Promise.all(MADE.map((kind) => witness.watch(cluster, kind)))
    return witness
  }

  /** Names of objects that were made more than once, one entry for each time too many. */
  madeTwice(): string[] {
    return [...this.uids].flatMap(([name, uids]) => Array.from({ length: uids.size - 1 }, () => name))
  }

  get made(): number {
    return this.uids.size
  }

  /** When a document's certificate was first seen to be Ready, by the clock's monotonic time. */
  certificateReadyMs(documentId: string): number | undefined {
    return this.readyMs.get(documentId)
  }

  async stop(): Promise<void> {
    this.over = true
    await Promise.all(this.informers.map((informer) => informer.stop()))
  }

  private async watch({ config, objects }: DemoCluster, kind: Kind): Promise<void> {
    const group = kind.apiVersion.includes('/') ? `/apis/${kind.apiVersion}` : `/api/${kind.apiVersion}`
    const path = `${group}/${kind.plural}`
    const list = () =>
      objects.list(kind.apiVersion, kind.kind, undefined, undefined, undefined, undefined, undefined, OURS)
    const informer = makeInformer(config, path, list, OURS)
    informer.on('add', (object) => this.saw(kind, object))
    informer.on('update', (object) => this.saw(kind, object))
    informer.on('error', () => void this.again(informer))
    this.informers.push(informer)
    await informer.start()
  }

  /** A watch that breaks is opened anew, and everything listed again. */
  private async again(informer: Informer<KubernetesObject>): Promise<void> {
    await sleep(AGAIN_AFTER_MS, { unref: true })
    if (!this.over) await informer.start().catch(() => this.again(informer))
  }

  private saw(kind: Kind, object: KubernetesObject): void {
    const { name, uid, namespace, labels, annotations } = object.metadata ?? {}
    const document = labels?.[DOCUMENT_LABEL]
    if (!uid || document === undefined || annotations?.[DATABASE] !== this.database) return
    const key = `${kind.kind} ${name} in ${namespace}`
    this.uids.set(key, (this.uids.get(key) ?? new Set()).add(uid))
    if (kind !== CERTIFICATE || this.readyMs.has(document)) return
    const { conditions = [] } = (object as WithStatus).status ?? {}
    const isReady = conditions.some(({ type, status }) => type === 'Ready' && status === 'True')
    if (isReady) this.readyMs.set(document, this.clock.monotonicMs())
  }
}
