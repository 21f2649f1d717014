import { expect, test } from '@jest/globals'
import { Replica } from '../../../src/index.js'
import type { KubernetesObject, Region } from '../../../src/kubernetes/index.js'
import { runtimeDomainLifecycles } from '../../../src/tasks/index.js'
import { eventually, useDatabase } from '../../support/database.js'

const database = useDatabase()

test('a Certificate that something in the cluster changes each time is asked for again after pauses, and said', async () => {
  const { db } = database
  // What a policy does that adds a name to every Certificate.
  const held = {
    owner: { labels: {}, annotations: {} },
    ensure: async (object: KubernetesObject) => ({
      ...object,
      spec: { ...(object['spec'] as object), dnsNames: ['a', 'b'] },
    }),
  }
  const region = {
    name: 'eu',
    cluster: { hold: () => held },
    gateway: {
      domain: 'eu.example',
      annotations: {},
      tls: { enabled: true, issuer: { name: 'le', kind: 'ClusterIssuer' } },
    },
    namespaceFor: () => 'gw',
  } as unknown as Region
  const regions = { of: async () => region, usable: async () => [region] }
  const replica = new Replica({
    db,
    lifecycles: runtimeDomainLifecycles({ db, regions, watch: false }).all,
    name: 'r1',
  })
  const domains = db.collection<{ _id: string }>('RuntimeDomain')
  const names = { host: 'a.eu.example', customDomain: 'shop.example' }
  await domains.insertOne({ _id: 'a', phase: 'Creating', ...names } as { _id: string })
  await eventually(async () => {
    await replica.runOnce()
    const waitingFor = expect.stringMatching(/^Certificate domain-a-\w+ to be as it was asked for/)
    expect(await domains.findOne()).toMatchObject({ phase: 'Creating', progress: { step: 'certificate', waitingFor } })
  })
  await replica.stop()
})
