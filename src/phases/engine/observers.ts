import { tellObservers } from '../../observers/index.js'
import type { BoundedLog } from '../bounded-log.js'
import { REPLICA_EVENTS, type ReplicaObserver } from './observer.js'

/** One observer that notifies several; what one throws or rejects with is only logged. */
export function observers(all: readonly ReplicaObserver[], lines: BoundedLog): Required<ReplicaObserver> {
  const tell = (name: keyof ReplicaObserver) => {
    const kind = `an observer's ${name} threw`
    const threw = (error: unknown) => lines.error({ kind }, `${kind}: ${String(error)}`)
    return (event: unknown) => tellObservers(all, name, event, threw)
  }
  return Object.fromEntries(REPLICA_EVENTS.map((name) => [name, tell(name)])) as unknown as Required<ReplicaObserver>
}
