import { expect, jest, test } from '@jest/globals'
import type { KubernetesDemoResult } from '../../chaos/kubernetes/result.ts'
import { type AuditEvent, describeWithCluster } from '../kubernetes/support/index.js'
import { testServerUri, withDatabase } from '../support/database.js'
import { chaos } from './chaos.js'

jest.setTimeout(1_800_000)

const DOMAINS = 200
const INSTANCES = 50
const MADE = ['certificates', 'ingresses', 'deployments', 'services']
const CREATED = 201

const RULES = [
  { apiGroups: [''], resources: ['namespaces', 'services', 'secrets', 'pods'], verbs: ['*'] },
  { apiGroups: ['apps'], resources: ['deployments', 'replicasets'], verbs: ['*'] },
  { apiGroups: ['networking.k8s.io'], resources: ['ingresses'], verbs: ['*'] },
  { apiGroups: ['cert-manager.io'], resources: ['certificates', 'certificaterequests', 'issuers'], verbs: ['*'] },
]

/** On the run's database server and in the test's cluster. */
async function demo(kubeconfig: string): Promise<KubernetesDemoResult> {
  const env = { MONGODB_URI: withDatabase(testServerUri(), 'unused'), KUBECONFIG: kubeconfig }
  const { code, out, err } = await chaos(['--kubernetes', '--json', '--documents', String(DOMAINS + INSTANCES)], env)
  if (code !== 0) throw new Error(`the demo ended with ${code}: ${out}${err}`)
  return JSON.parse(out)
}

/** How often each object was created, by kind, namespace and name. */
function creations(events: readonly AuditEvent[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const { objectRef, responseStatus } of events) {
    if (!objectRef || !MADE.includes(objectRef.resource) || responseStatus.code !== CREATED) continue
    const key = `${objectRef.resource} ${objectRef.namespace}/${objectRef.name}`
    counts.set(key, 1 + (counts.get(key) ?? 0))
  }
  return counts
}

describeWithCluster('three replicas, one killed', (cluster) => {
  test('200 domains and 50 instances are created, stopped and deleted: nothing is left, nothing was made twice', async () => {
    const account = await cluster().serviceAccount(RULES)
    const { documents, domains, instances, objects, lost, madeTwice, leftOver, leasesAtKill } = await demo(
      account.kubeconfig,
    )
    expect({ lost, madeTwice, leftOver }).toEqual({ lost: 0, madeTwice: 0, leftOver: 0 })
    expect(leasesAtKill).toBeGreaterThan(0)
    expect(domains).toBeGreaterThanOrEqual(DOMAINS)
    expect(instances).toBe(INSTANCES)
    // Each has two objects of its own.
    expect(objects).toBe(2 * documents)
    if (!cluster().isAudited) return
    // The API server's own books say the same.
    const counts = creations(await cluster().auditEvents(account))
    expect([...counts].filter(([, count]) => count !== 1)).toEqual([])
    // But the process that was killed didn't stay for its answers: what it was just making is booked as a request that broke off.
    expect(counts.size).toBeLessThanOrEqual(objects)
    expect(counts.size).toBeGreaterThanOrEqual(objects - leasesAtKill)
  })
})
