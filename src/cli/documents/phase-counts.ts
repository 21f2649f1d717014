import type { Db } from 'mongodb'
import { leaseStateExpression, phasesIn, termsOf } from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { lockTimeoutInForce } from './find-documents.js'

/** No phase is counted further than this. */
export const COUNT_LIMIT = 10_000

export interface PhaseCount {
  readonly lifecycle: string
  readonly phase: string
  readonly kind: 'working' | 'resting' | 'final' | 'unknown'
  /** At most {@link COUNT_LIMIT}; `more` says that there are more, and then the others are of the first so many. */
  readonly documents: number
  readonly more: boolean
  readonly due: number
  readonly held: number
  readonly sleeping: number
  readonly parked: number
}

/** How many documents are in each phase and what they do, also in phases that the lifecycle doesn't know. */
export async function countPhases(db: Db, model: LifecycleModel): Promise<PhaseCount[]> {
  const collection = db.collection(model.collection)
  const lockTimeoutMs = await lockTimeoutInForce(db, model)
  const found = await phasesIn(collection)
  const unknown = found.filter((phase): phase is string => typeof phase === 'string' && !model.phases.has(phase))
  return Promise.all(
    [...model.phases.keys(), ...unknown].map(async (phase) => {
      const rows = await collection
        .aggregate<{ _id: string; n: number }>([
          { $match: { phase } },
          { $limit: COUNT_LIMIT + 1 },
          { $group: { _id: leaseStateExpression(termsOf(lockTimeoutMs)), n: { $sum: 1 } } },
        ])
        .toArray()
      const of = (kind: string) => rows.find((row) => row._id === kind)?.n ?? 0
      const documents = rows.reduce((sum, row) => sum + row.n, 0)
      return {
        lifecycle: model.name,
        phase,
        kind: model.phases.get(phase)?.kind ?? ('unknown' as const),
        documents: Math.min(documents, COUNT_LIMIT),
        more: documents > COUNT_LIMIT,
        due: of('due'),
        held: of('held'),
        sleeping: of('asleep'),
        parked: of('parked'),
      }
    }),
  )
}
