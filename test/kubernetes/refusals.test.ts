import { expect, test } from '@jest/globals'
import { describeWithCluster } from './support/index.js'
import { useWorld } from './world.js'

const READ = ['get', 'list', 'watch']
const WRITE = [...READ, 'create', 'patch', 'delete']
const certificates = { apiGroups: ['cert-manager.io'], resources: ['certificates'], verbs: WRITE }

describeWithCluster('what a cluster refuses', (cluster) => {
  const world = useWorld()

  async function site() {
    const namespace = await cluster().namespace()
    const issuer = await cluster().issuer()
    return { namespace, issuer, kubeconfig: cluster().kubeconfigText }
  }

  test('a right that is missing: the document waits and says verb, resource and namespace; once it is there, the domain goes on', async () => {
    const { namespace, issuer } = await site()
    const rules = [certificates, { apiGroups: ['networking.k8s.io'], resources: ['ingresses'], verbs: READ }]
    const account = await cluster().serviceAccount(rules, { namespaces: [namespace] })
    world.employ({ kubeconfig: account.kubeconfigText, namespace, issuer })
    const id = await world.insertDomain()
    await world.until(async () => {
      const { progress } = await world.document(id)
      expect(progress.waitingFor).toMatch(
        new RegExp(`right to (create|patch) ingresses.networking.k8s.io in namespace ${namespace} `),
      )
    })
    const more = [{ apiGroups: ['networking.k8s.io'], resources: ['ingresses'], verbs: WRITE }]
    await cluster().grant(account, more, namespace)
    await world.until(async () => expect(await world.document(id)).toMatchObject({ phase: 'Created' }))
  })

  test('a finalizer that blocks a deletion: the domain waits and names it, and goes on when it is removed', async () => {
    const place = await site()
    world.employ(place)
    const id = await world.insertDomain()
    await world.until(async () => expect(await world.document(id)).toMatchObject({ phase: 'Created' }))
    const { placed } = await world.document(id)
    const ingress = {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'Ingress',
      metadata: { name: placed.ingress, namespace: place.namespace },
    }
    await cluster().setFinalizers(ingress, ['test.example.org/blocks'])
    await world.want(id, 'Deleted')
    await world.until(async () => {
      const { phase, progress } = await world.document(id)
      expect({ phase, waitingFor: progress.waitingFor }).toEqual({
        phase: 'Deleting',
        waitingFor: expect.stringContaining('test.example.org/blocks'),
      })
    })
    expect(await world.document(id)).toMatchObject({ progress: { attempts: 0 } })
    await cluster().setFinalizers(ingress, [])
    await world.until(async () => expect(await world.document(id)).toEqual({}))
    await expect(cluster().admin.read(ingress)).rejects.toMatchObject({ code: 404 })
  })

  test('an exceeded quota: the domain is parked with the message of the server', async () => {
    const place = await site()
    const quota = {
      apiVersion: 'v1',
      kind: 'ResourceQuota',
      metadata: { name: 'no-certificates', namespace: place.namespace },
      spec: { hard: { 'count/certificates.cert-manager.io': '0' } },
    }
    await cluster().make(quota)
    const certificate = {
      apiVersion: 'cert-manager.io/v1',
      kind: 'Certificate',
      spec: { secretName: 'a', issuerRef: place.issuer },
    }
    await cluster().untilRefused(
      { ...certificate, metadata: { name: 'a', namespace: place.namespace } },
      'exceeded quota',
    )
    world.employ(place)
    const id = await world.insertDomain()
    await world.until(async () => {
      const { lockedAt, progress } = await world.document(id)
      expect(lockedAt).toEqual(new Date('9999-12-31'))
      expect(progress.error.message).toContain('exceeded quota: no-certificates')
    })
  })

  test('a namespace that is being deleted: documents wait and say so', async () => {
    const place = await site()
    // Something that holds the namespace until the test is over.
    const held = {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'held', namespace: place.namespace, finalizers: ['test.example.org/blocks'] },
    }
    await cluster().make(held)
    await cluster().admin.delete({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: place.namespace } })
    await cluster().untilRefused(
      { ...held, metadata: { name: 'late', namespace: place.namespace } },
      'is being terminated',
    )
    world.employ(place)
    const id = await world.insertDomain()
    await world.until(async () => {
      const { phase, progress } = await world.document(id)
      expect(phase).toBe('Creating')
      expect(progress.waitingFor).toContain('is being terminated')
    })
    expect(await world.document(id)).toMatchObject({ progress: { attempts: 0 } })
    await cluster().setFinalizers(held, [])
  })
})
