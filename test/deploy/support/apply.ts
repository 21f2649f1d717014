import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect } from '@jest/globals'
import { type KubernetesObjectApi, PatchStrategy } from '@kubernetes/client-node'
import type { TestCluster } from '../../kubernetes/support/index.js'
import { eventually } from '../../support/database.js'
import { definitionsFolder } from '../programs.mjs'
import { type Manifest, objectsIn } from './render.js'

/** Server-side, as `kubectl apply --server-side` does it. @returns the object as the API server has it then */
export async function apply(admin: KubernetesObjectApi, object: Manifest): Promise<Manifest> {
  return (await admin.patch(
    object,
    undefined,
    undefined,
    'test-deploy',
    true,
    PatchStrategy.ServerSideApply,
  )) as Manifest
}

/**
 * The kinds of the Prometheus operator and of KEDA that the manifests use, each served when it resolves. On a control plane of this
 * run they stay: its garbage collector would stand still for a while over kinds that go.
 */
export async function defineKinds(cluster: TestCluster): Promise<void> {
  const [operator, keda] = await Promise.all([definitionsFolder('prometheusOperator'), definitionsFolder('keda')])
  const files = [
    ...['servicemonitors', 'prometheusrules'].map((plural) =>
      join(operator, `example/prometheus-operator-crd/monitoring.coreos.com_${plural}.yaml`),
    ),
    join(keda, 'config/crd/bases/keda.sh_scaledobjects.yaml'),
  ]
  for (const file of files) {
    const [definition] = objectsIn(await readFile(file, 'utf8'))
    const made = process.env['KUBECONFIG'] ? cluster.make(definition!) : cluster.admin.create(definition!)
    // Another test file may have made it.
    await made.catch((error: { code?: number }) => {
      if (error.code !== 409) throw error
    })
    await eventually(async () => {
      const { status } = (await cluster.admin.read(definition!)) as Manifest
      expect(status?.conditions).toContainEqual(expect.objectContaining({ type: 'Established', status: 'True' }))
    })
  }
}

/**
 * The objects with those of the whole cluster renamed, so that two deployments in one cluster don't share them: what a user's
 * `namespace:` does for all others.
 */
export function inNamespace(namespace: string, objects: readonly Manifest[]): Manifest[] {
  const names = new Map(
    objects
      .filter(({ kind }) => kind === 'ClusterRole' || kind === 'ClusterRoleBinding')
      .map(({ metadata: { name } }) => [name, `${name}-${namespace}`]),
  )
  return objects.map((object) => {
    const copy: Manifest = structuredClone(object)
    if (copy.metadata.namespace !== undefined) copy.metadata.namespace = namespace
    else copy.metadata.name = names.get(copy.metadata.name) ?? copy.metadata.name
    if (copy['roleRef']?.kind === 'ClusterRole') copy['roleRef'].name = names.get(copy['roleRef'].name)
    for (const subject of copy['subjects'] ?? []) subject.namespace = namespace
    return copy
  })
}
