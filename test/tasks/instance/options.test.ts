import { describe, expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { instanceLifecycles, instanceNameFor, jobNameFor, kubernetesJobLifecycles } from 'phaselock-tasks'
import { checkInstance, type InstanceSpec } from '../../../packages/tasks/src/instance/check-instance.js'
import type { Instance } from '../../../packages/tasks/src/instance/documents.js'
import { manifestsOf } from '../../../packages/tasks/src/instance/manifests.js'
import { Cluster, singleRegion } from '../../../src/kubernetes/index.js'

/** Never connected. */
const db = new MongoClient('mongodb://127.0.0.1').db('options')
const cluster = Cluster.of({ name: 'test', kubeconfig: 'default' })

describe('options of tasks that run pods', () => {
  test.each([
    ['instance', instanceLifecycles],
    ['kubernetes-job', kubernetesJobLifecycles],
  ])('of %s say where objects are made, and nothing unknown', (_name, lifecycles) => {
    const of = (options: object) => () => lifecycles({ db, ...options } as never)
    expect(of({})).toThrow(/expected regions, or cluster and namespace, .* got none of them/)
    expect(of({ cluster })).toThrow(/got cluster/)
    expect(of({ cluster, namespace: 'x', podSecurity: 'none' })).toThrow(
      /podSecurity: expected one of baseline, restricted, got "none"/,
    )
    expect(of({ cluster, namespace: 'x', lokTimeout: '3s' })).toThrow(/unknown setting 'lokTimeout'/)
    expect(of({ cluster, namespace: 'x', keepFor: 'long' })).toThrow(/keepFor/)
  })

  test('names are those of hosts, and differ where ids do', () => {
    const region = singleRegion('eu-1', cluster, { namespace: 'x', gateway: { domain: 'eu.example.org' } })
    expect(instanceLifecycles({ db, regions: region, watch: false }).instance.alongside).toEqual([])
    const ids = ['shop', 'Shop', 5, '5', 'a'.repeat(100), 'ä', { a: 1 }]
    const names = ids.flatMap((id) => [instanceNameFor(id), jobNameFor(id)])
    expect(new Set(names).size).toBe(names.length)
    for (const name of names) expect(name).toMatch(/^[a-z][a-z0-9-]{0,45}$/)
    expect(instanceNameFor('shop')).toBe('instance-shop')
  })
})

describe("an instance's revision", () => {
  const about = { name: 'instance-1', namespace: 'x', security: 'baseline', restarted: undefined } as const
  const of = (fields: Partial<Instance>) => {
    const checked = checkInstance({ _id: 1, image: 'shop:1', ...fields })
    return manifestsOf((checked as { spec: InstanceSpec }).spec, about)
  }
  const base = of({ env: { A: '1', B: '2' }, ports: [{ port: 80 }] })

  test('is the same whatever the order of its fields', () => {
    expect(of({ ports: [{ port: 80, protocol: 'TCP' }], env: { B: '2', A: '1' } })).toEqual(base)
  })

  test('changes with everything; that of its pods only with what is in them', () => {
    const changed = [{ replicas: 2 }, { ports: [{ port: 81 }] }, { env: { A: '2' } }, { image: 'shop:2' }].map((more) =>
      of({ env: { A: '1', B: '2' }, ports: [{ port: 80 }], ...more }),
    )
    expect(changed.map(({ revision }) => revision === base.revision)).toEqual([false, false, false, false])
    expect(changed.map(({ podRevision }) => podRevision === base.podRevision)).toEqual([true, true, false, false])
  })
})
