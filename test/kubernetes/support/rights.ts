import { Cluster, type ObjectRef } from '../../../src/kubernetes/index.js'
import { eventually } from '../../support/database.js'
import type { TestAccount } from './test-cluster.js'

/** The API server learns of a new Role a moment after it was made: waits until the account may get this. */
export async function untilMayGet({ kubeconfigText }: TestAccount, ref: ObjectRef): Promise<void> {
  const cluster = Cluster.of({ name: 'test', kubeconfig: kubeconfigText })
  await eventually(() => cluster.get(ref))
  cluster.close()
}
