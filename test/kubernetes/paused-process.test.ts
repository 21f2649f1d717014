import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { expect, test } from '@jest/globals'
import { lifecycleOf, Replica } from '../../src/index.js'
import { Cluster, onCluster } from '../../src/kubernetes/index.js'
import type { RunningStep } from '../../src/phases/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { HoldingProxy } from './support/holding-proxy.js'
import { describeWithCluster } from './support/index.js'
import { untilMayGet } from './support/rights.js'

interface Page {
  _id: string
  state?: 'Deleted'
}

const RIGHTS = [{ apiGroups: [''], resources: ['configmaps'], verbs: ['get', 'create', 'patch', 'delete'] }]
const PROGRAM = fileURLToPath(new URL('paused-process.mjs', import.meta.url))
const DEFINITION = {
  name: 'page',
  collection: 'Page',
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '0s' },
  },
  rules: [{ when: 'Deleted', from: ['Creating', 'Created'], moveTo: 'Deleting' }],
  lockTimeout: '8s',
} as const

describeWithCluster('a process that stands still for longer than its lease', (kubernetes) => {
  const database = useDatabase()
  const ends = useEnds()

  test('creates nothing that stays: neither what it was about to send, nor what was on its way', async () => {
    const namespace = await kubernetes().namespace('paused')
    const account = await kubernetes().serviceAccount(RIGHTS, { namespaces: [namespace] })
    const mapOf = (_id: string) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: _id, namespace } })
    await untilMayGet(account, mapOf('looking'))
    const proxy = await HoldingProxy.before(account)
    ends.push(() => proxy.stop())
    const pages = database.db.collection<{ _id: string; [more: string]: unknown }>('Page')
    const [looking, creating] = [proxy.hold('GET', '/looking'), proxy.hold('PATCH', '/creating')]
    const ids = ['looking', 'creating']
    await pages.insertMany(ids.map((_id) => ({ _id, phase: 'Creating', lockedAt: new Date(0) })))

    const args = [database.uri, proxy.kubeconfigText, JSON.stringify(DEFINITION), namespace]
    const child: ChildProcess = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
    ends.push(() => child.kill('SIGKILL'))
    const said: string[] = []
    createInterface({ input: child.stdout! }).on('line', (line) => said.push(line))

    // One has asked whether its object is there; the other's creation has left the process. Both are answered in its sleep.
    await Promise.all([looking.arrived, creating.arrived])
    child.kill('SIGSTOP')
    looking.release()
    await looking.answered

    const cluster = Cluster.of({ name: 'test', kubeconfig: account.kubeconfigText })
    ends.push(() => cluster.close())
    const where = (doc: Readonly<Page>, step: RunningStep) =>
      cluster.hold(doc, step, { name: 'page', collection: 'Page', db: database.db })
    const other = new Replica({
      db: database.db,
      lifecycles: [
        lifecycleOf<Page>()
          .define(DEFINITION)
          .handle({
            Creating: async (_doc, step) => step.moveTo('Created'),
            Deleting: onCluster(where, async (doc, step, held) => {
              const removal = await held.remove(mapOf(doc._id))
              return removal.done ? step.moveTo('Deleted') : step.wait(removal.text)
            }),
          }),
      ],
    })
    ends.push(() => other.stop())
    await pages.updateMany({}, { $set: { state: 'Deleted' } })
    await eventually(
      async () => {
        await other.runOnce()
        expect(await pages.countDocuments()).toBe(0)
      },
      { timeoutMs: 180_000 },
    )
    creating.release()
    await creating.answered
    expect(await cluster.get(mapOf('creating'))).toBeDefined()

    child.kill('SIGCONT')
    const whose = () => said.map((line) => line.split(' ')[0]).sort()
    await eventually(() => expect(whose()).toEqual(['creating', 'looking']), { timeoutMs: 180_000 })
    expect(said).not.toContain('creating made')
    for (const id of ids) await eventually(async () => expect(await cluster.get(mapOf(id))).toBeUndefined())
    expect(proxy.requests.filter((request) => request.startsWith('PATCH') && request.endsWith('/looking'))).toEqual([])
  })
})
