import type { Db } from 'mongodb'
import type { Cluster, HeldCluster } from '../../../src/kubernetes/index.js'

/** One step's hold on a document of `Thing`, as the engine would have it: under this fence, its lease far from its end. */
export async function holdThing(
  { cluster, db }: { cluster: Cluster; db: Db },
  id: string,
  fence = 1,
  leaseLeftMs: () => number = () => 30_000,
): Promise<HeldCluster> {
  const lockedBy = `test~1#${fence}.1`
  const things = db.collection<{ _id: string }>('Thing')
  await things.updateOne({ _id: id }, { $set: { lockedBy, fence } }, { upsert: true })
  const step = { fence, signal: new AbortController().signal, leaseLeftMs }
  return cluster.hold({ _id: id, lockedBy }, step, { name: 'thing', collection: 'Thing', db })
}
