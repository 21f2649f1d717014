import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { PassThrough } from 'node:stream'
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals'
import { type Document, ObjectId } from 'mongodb'
import { Output } from '../../../src/cli/output.js'
import { runCli } from '../../../src/cli/run.js'
import { Replica } from '../../../src/index.js'
import { Cluster, Regions } from '../../../src/kubernetes/index.js'
import { PARKED_AT } from '../../../src/lock/index.js'
import { runtimeDomainLifecycles } from '../../../src/tasks/index.js'
import { useDatabase, eventually as within } from '../../support/database.js'
import { describeWithCluster } from '../support/index.js'

/** Outages take their time, more on a busy machine. */
jest.setTimeout(300_000)
const eventually = <T>(check: () => T | Promise<T>) => within(check, { timeoutMs: 90_000 })

const SECRET = { apiVersion: 'v1', kind: 'Secret' }

/** Takes connections and never says a word. */
async function silentServer(): Promise<{ port: number; close(): Promise<void> }> {
  const sockets = new Set<Socket>()
  const server: Server = createServer((socket) => {
    sockets.add(socket.on('error', () => undefined))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = async () => {
    for (const socket of sockets) socket.destroy()
    server.close()
    await once(server, 'close')
  }
  return { port: (server.address() as AddressInfo).port, close }
}

const kubeconfigFor = (server: string): string =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster: { server, 'insecure-skip-tls-verify': true } }],
    users: [{ name: 'u', user: { token: 'none' } }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  })

function withToken(kubeconfig: string, token: string): string {
  const config = JSON.parse(kubeconfig)
  for (const one of config.users) one.user = { token }
  return JSON.stringify(config)
}

describeWithCluster('regions', (testCluster) => {
  const database = useDatabase()
  const closing: (() => unknown)[] = []
  let namespace: string
  let home: Cluster
  let regions: Regions

  beforeEach(async () => {
    namespace = await testCluster().namespace('regions')
    home = Cluster.of({ name: 'home', kubeconfig: testCluster().kubeconfigText })
    regions = new Regions({ db: database.db, home, requestTimeout: '3s', refresh: '500ms' })
    closing.push(
      () => home.close(),
      () => regions.close(),
    )
  })
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close()
  })

  const secret = async (name: string, kubeconfig: string): Promise<void> => {
    const metadata = { name, namespace }
    const data = { kubeconfig: Buffer.from(kubeconfig).toString('base64') }
    if (await home.get({ ...SECRET, metadata })) await testCluster().admin.patch({ ...SECRET, metadata, data })
    else await testCluster().make({ ...SECRET, metadata, data })
  }

  /** With its kubeconfig in a Secret of that name. */
  const region = async (_id: string, kubeconfig: string): Promise<void> => {
    await secret(_id, kubeconfig)
    await database.db.collection<{ _id: string }>('Region').insertOne({
      _id,
      cluster: { kubeconfig: { secret: { namespace, name: _id, key: 'kubeconfig' } } },
      namespace,
      gateway: { domain: `${_id}.example` },
    } as { _id: string })
  }

  const replica = async (concurrency: number): Promise<void> => {
    const { all } = runtimeDomainLifecycles({ db: database.db, regions, concurrency })
    const one = new Replica({ db: database.db, lifecycles: all })
    closing.push(() => one.stop())
    await one.start()
  }

  const insert = async (region: string, count: number): Promise<void> => {
    const service = { name: 'web', port: 80 }
    const domains = Array.from({ length: count }, () => ({ _id: new ObjectId(), phase: 'Creating', region, service }))
    await database.db
      .collection('RuntimeDomain')
      .insertMany(domains.map((domain) => ({ ...domain, host: `d${domain._id}.${region}.example` })))
  }

  const domains = (region: string): Promise<Document[]> =>
    database.db.collection('RuntimeDomain').find({ region }).toArray()

  const allCreated = async (region: string) => {
    for (const { phase } of await domains(region)) expect(phase).toBe('Created')
  }

  test('one that hangs, one that refuses and one that is wrong keep no other waiting, and park nothing', async () => {
    const silent = await silentServer()
    closing.push(() => silent.close())
    const gone = await silentServer()
    await gone.close()
    await region('good', testCluster().kubeconfigText)
    await region('hanging', kubeconfigFor(`https://127.0.0.1:${silent.port}`))
    await region('refusing', kubeconfigFor(`https://127.0.0.1:${gone.port}`))
    await database.db.collection<{ _id: string }>('Region').insertOne({ _id: 'wrong', gateway: 7 } as { _id: string })
    const bad = ['hanging', 'refusing', 'wrong', 'missing']
    for (const name of bad) await insert(name, 20)
    await replica(8)
    await insert('good', 20)
    await eventually(() => allCreated('good'))
    const reasons: Record<string, RegExp> = {
      hanging: /^cluster hanging could not be asked/,
      refusing: /^cluster refusing could not be asked .*ECONNREFUSED/,
      wrong: /^region wrong can't be used: cluster: expected/,
      missing: /^region missing can't be used: expected a document missing in the collection Region, there is none/,
    }
    for (const name of bad) {
      await eventually(async () => {
        for (const { phase, progress, lockedAt } of await domains(name)) {
          expect({ phase, attempts: progress.attempts ?? 0 }).toEqual({ phase: 'Creating', attempts: 0 })
          expect(progress.waitingFor).toMatch(reasons[name]!)
          expect(lockedAt).not.toEqual(PARKED_AT)
        }
      })
    }
    await insert('good', 20)
    await eventually(() => allCreated('good'))
    const usable = { good: true, hanging: false, refusing: false, wrong: false }
    await eventually(async () => {
      const found = await regions.list()
      expect(Object.fromEntries(found.map(({ name, trouble }) => [name, trouble === undefined]))).toEqual(usable)
    })

    const out = new PassThrough()
    const context = { env: { MONGODB_URI: database.uri }, output: new Output(out, new PassThrough()) }
    expect(await runCli(['regions', '--json', '--kubeconfig', testCluster().kubeconfig], context)).toBe(0)
    const listed = JSON.parse(String(out.read())) as { name: string; trouble?: string }[]
    expect(listed.map(({ name }) => name)).toEqual(Object.keys(usable))
    expect(listed.at(-1)!.trouble).toMatch(reasons['wrong']!)

    // Mended, each by what was wrong with it: its documents go on without anybody waking them.
    await secret('hanging', testCluster().kubeconfigText)
    await secret('refusing', testCluster().kubeconfigText)
    const gateway = { domain: 'mended.example' }
    for (const _id of ['wrong', 'missing']) {
      await database.db
        .collection<{ _id: string }>('Region')
        .replaceOne(
          { _id },
          { cluster: { kubeconfig: { secret: { namespace, name: 'good' } } }, namespace, gateway } as object,
          { upsert: true },
        )
    }
    for (const name of bad) await eventually(() => allCreated(name))
  })

  test('credentials that are refused wait; a rotated Secret and a changed Region are noticed', async () => {
    await region('eu', withToken(testCluster().kubeconfigText, 'expired'))
    await replica(8)
    await insert('eu', 1)
    await eventually(async () => {
      const [{ progress }] = (await domains('eu')) as [Document]
      expect(progress.waitingFor).toMatch(/^cluster eu .*credentials/)
    })
    const before = (await regions.of('eu')).cluster
    await secret('eu', testCluster().kubeconfigText)
    await eventually(() => allCreated('eu'))
    const { cluster } = await regions.of('eu')
    expect(cluster).not.toBe(before)
    await database.db
      .collection<{ _id: string }>('Region')
      .updateOne({ _id: 'eu' }, { $set: { 'gateway.domain': 'other.example' } })
    await eventually(async () => expect((await regions.of('eu')).gateway.domain).toBe('other.example'))
    // What is the same stays the same: watches go on.
    expect((await regions.of('eu')).cluster).toBe(cluster)
  })
})
