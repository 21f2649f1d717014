import { expect, test } from '@jest/globals'
import { eventually } from '../support/database.js'
import { describeWithCluster } from './support/index.js'

describeWithCluster('the control plane', (cluster) => {
  test('issues certificates and makes pods ready', async () => {
    const namespace = await cluster().namespace()
    const issuerRef = await cluster().issuer()
    const spec = { secretName: 'web', dnsNames: ['web.example.com'], issuerRef }
    const certificate = {
      apiVersion: 'cert-manager.io/v1',
      kind: 'Certificate',
      metadata: { name: 'web', namespace },
      spec,
    }
    await cluster().make(certificate)
    const labels = { app: 'web' }
    const template = { metadata: { labels }, spec: { containers: [{ name: 'web', image: 'example.com/web:1' }] } }
    const deployment = {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: 'web', namespace },
      spec: { replicas: 2, selector: { matchLabels: labels }, template },
    }
    await cluster().make(deployment)
    await eventually(async () => {
      const issued = (await cluster().admin.read(certificate)) as { status?: { conditions?: object[] } }
      expect(issued.status?.conditions).toContainEqual(expect.objectContaining({ type: 'Ready', status: 'True' }))
      expect(await cluster().admin.read(deployment)).toMatchObject({ status: { availableReplicas: 2 } })
    })
  })

  test('a service account has its rights and no others, and the audit log has what it asked for', async () => {
    const namespace = await cluster().namespace()
    const rules = [{ apiGroups: [''], resources: ['configmaps'], verbs: ['create'] }]
    const account = await cluster().serviceAccount(rules, { namespaces: [namespace] })
    const client = cluster().clientOf(account)
    const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a', namespace } }
    // The API server learns of a new Role a moment after it was made.
    await eventually(() => client.create(map))
    await expect(client.read(map)).rejects.toMatchObject({ code: 403 })
    const elsewhere = { ...map, metadata: { name: 'a', namespace: account.namespace } }
    await expect(client.create(elsewhere)).rejects.toMatchObject({ code: 403 })
    if (!cluster().isAudited) return
    await eventually(async () => {
      const events = await cluster().auditEvents(account)
      const asked = events.filter(({ objectRef }) => objectRef?.resource === 'configmaps')
      const answers = asked.map(({ verb, objectRef, responseStatus }) => [
        ...[verb, objectRef?.namespace, responseStatus.code],
      ])
      expect(answers.filter(([verb, place]) => place !== namespace || verb !== 'create')).toEqual([
        ['get', namespace, 403],
        ['create', account.namespace, 403],
      ])
      // It may have been refused at first.
      expect(answers).toContainEqual(['create', namespace, 201])
    })
  })
})
