import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { ownerOf } from '../../src/kubernetes/cluster/ownership.js'
import { BeingDeleted, Cluster, type KubernetesObject, NotOwned, StaleFence } from '../../src/kubernetes/index.js'
import { NoLongerHeld } from '../../src/phases/index.js'
import { useDatabase } from '../support/database.js'
import { holdThing } from './support/holds.js'
import { describeWithCluster } from './support/index.js'

describeWithCluster('what a step may do in a cluster', (kubernetes) => {
  const database = useDatabase()
  let cluster: Cluster
  let namespace: string
  beforeAll(async () => {
    cluster = Cluster.of({ name: 'test', kubeconfig: kubernetes().kubeconfigText })
    namespace = await kubernetes().namespace('held')
  })
  afterAll(() => cluster.close())

  const map = (name: string, data: Record<string, string> = {}, finalizers: string[] = []): KubernetesObject => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name, namespace, finalizers },
    data,
  })
  const held = (id: string, fence: number, leaseLeftMs?: () => number) =>
    holdThing({ cluster, db: database.db }, id, fence, leaseLeftMs)

  describe('ensure', () => {
    test('makes an object, then changes it: what is left out goes, what others wrote stays', async () => {
      const first = await (await held('a', 1)).ensure(map('a', { x: '1', y: '1' }))
      expect(first.metadata.labels).toEqual({
        'phaselock.dev/lifecycle': 'thing',
        'phaselock.dev/document': 'a',
        'app.kubernetes.io/managed-by': 'phaselock',
      })
      expect(ownerOf(first)).toEqual({ lifecycle: 'thing', database: database.db.databaseName, id: 'a' })
      await kubernetes().admin.patch({ ...map('a', { other: 'o' }), metadata: { name: 'a', namespace } })
      const second = await (await held('a', 2)).ensure(map('a', { x: '2' }))
      expect(second.metadata.annotations).toMatchObject({ 'phaselock.dev/fence': '2' })
      expect(second['data']).toEqual({ x: '2', other: 'o' })
      expect(second.metadata.uid).toBe(first.metadata.uid)
      // What came from the server may be given back.
      expect((await (await held('a', 3)).ensure({ ...second, data: { x: '3' } }))['data']).toEqual({
        x: '3',
        other: 'o',
      })
    })

    test("refuses what is somebody else's, and what a newer holder has written", async () => {
      await (await held('b', 5)).ensure(map('b', { x: '5' }))
      await expect((await held('c', 9)).ensure(map('b', { x: '9' }))).rejects.toThrow(NotOwned)
      await expect((await held('c', 9)).remove(map('b'))).rejects.toThrow(NotOwned)
      await expect((await held('b', 4)).ensure(map('b', { x: '4' }))).rejects.toThrow(StaleFence)
      await expect((await held('b', 4)).remove(map('b'))).rejects.toThrow(StaleFence)
      expect((await cluster.get(map('b')))!['data']).toEqual({ x: '5' })
    })

    test('sends nothing without a lease', async () => {
      await expect((await held('e', 1, () => 0)).ensure(map('e'))).rejects.toThrow(NoLongerHeld)
      expect(await cluster.get(map('e'))).toBeUndefined()
    })

    test("removes what it has made when the document is another's by then", async () => {
      const late = await held('d', 1)
      await held('d', 2)
      await expect(late.ensure(map('d'))).rejects.toThrow(NoLongerHeld)
      expect(await cluster.get(map('d'))).toBeUndefined()
    })
  })

  describe('remove', () => {
    test('what is not there is gone', async () => {
      const mine = await held('f', 1)
      await mine.ensure(map('f'))
      expect(await mine.remove(map('f'))).toMatchObject({ done: true })
      expect(await mine.remove(map('f'))).toMatchObject({ done: true })
    })

    test('names the finalizers that hold an object; meanwhile it cannot be made anew', async () => {
      const mine = await held('g', 1)
      await mine.ensure(map('g', {}, ['example.com/hold']))
      const there = { done: false, text: 'ConfigMap g is still there, held by the finalizer example.com/hold' }
      expect(await mine.remove(map('g'))).toEqual(there)
      expect(await mine.remove(map('g'))).toEqual(there)
      expect(await mine.ready(map('g'))).toMatchObject({ done: false, text: 'ConfigMap g is being deleted' })
      await expect(mine.ensure(map('g'))).rejects.toThrow(BeingDeleted)
      const patch = [{ op: 'remove', path: '/metadata/finalizers' }]
      const http = { method: 'PATCH', body: patch, contentType: 'application/json-patch+json' } as const
      await cluster.answerTo({ verb: 'patch', kind: map('g'), namespace, object: 'g', http })
      expect(await mine.remove(map('g'))).toMatchObject({ done: true })
    })
  })
})
