import { parseToken } from '../lock/index.js'
import { Replica } from '../phases/index.js'
import { sleep } from '../time/index.js'
import { listOperations, type OperationState } from './bulk/operations.js'
import { operationLifecycle } from './public.js'
import type { System } from './system/system.js'

const LOOK_EVERY_MS = 250
const TELL_EVERY_MS = 1_000

/** True once it has ended, or can't continue without help. */
const isStill = ({ condition }: OperationState): boolean => condition !== 'Running' && condition !== 'Waiting'

/**
 * Works on operations in this process, as a replica with only their lifecycle, until the given ones have ended or are parked. Other
 * processes may do the same at the same time: each operation is worked on by one of them.
 * @param tell called with each about once a second; its `worker` is set only if that is another process
 * @param signal when it aborts, the current page ends, and the operation is released: the next process that works on operations continues
 * @returns their states at the end
 * @example await workOnOperations(system, ['wake-4f2a9c1b'], { tell: show }) // [{ condition: 'Done', counts: { seen: 1204, ... }, ... }]
 */
export async function workOnOperations(
  system: System,
  ids: readonly string[],
  { tell, signal }: { readonly tell?: (state: OperationState) => void; readonly signal?: AbortSignal } = {},
): Promise<readonly OperationState[]> {
  // It looks immediately when it starts, and no notification is urgent enough that it can't wait for the next tick.
  const options = { doorbell: 'off', grace: '2s' } as const
  const replica = new Replica({ db: system.db, lifecycles: [operationLifecycle(system)], ...options })
  const states = async () => {
    const { operations } = await listOperations(system, { limit: 10_000 })
    return operations.filter(({ _id }) => ids.includes(_id))
  }
  try {
    await replica.start()
    for (let round = 1; ; round += 1) {
      const now = await states()
      if (signal?.aborted || now.every(isStill)) break
      if (tell && round % Math.round(TELL_EVERY_MS / LOOK_EVERY_MS) === 0) {
        const isOwn = ({ worker = '' }: OperationState) => parseToken(worker)?.replica === replica.identity
        for (const one of now) tell(isOwn(one) ? { ...one, worker: undefined } : one)
      }
      await sleep(LOOK_EVERY_MS, signal ? { signal } : {})
    }
  } finally {
    await replica.stop()
  }
  return states()
}
