import type { Logger } from '../logger.js'
import type { ReplicaObserver } from './observer.js'

const EVENTS = [
  'claimed',
  'stepEnded',
  'leaseLost',
  'ruled',
  'broken',
  'removed',
  'ticked',
  'rung',
  'woken',
  'watched',
  'loopBlocked',
] as const

/** One observer that tells several; what one throws is logged and harms nobody. */
export function observers(all: readonly ReplicaObserver[], logger: Logger): Required<ReplicaObserver> {
  const tell = (name: (typeof EVENTS)[number]) => (event: never) => {
    for (const one of all) {
      try {
        one[name]?.(event)
      } catch (error) {
        logger.error(`an observer's ${name} threw: ${String(error)}`)
      }
    }
  }
  return Object.fromEntries(EVENTS.map((name) => [name, tell(name)])) as unknown as Required<ReplicaObserver>
}
