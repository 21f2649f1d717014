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

/** One observer that tells several; what one throws or rejects with is logged and harms nobody. */
export function observers(all: readonly ReplicaObserver[], logger: Logger): Required<ReplicaObserver> {
  const tell = (name: (typeof EVENTS)[number]) => (event: never) => {
    for (const one of all) {
      const threw = (error: unknown) => logger.error(`an observer's ${name} threw: ${String(error)}`)
      try {
        const told: unknown = one[name]?.(event)
        if (told instanceof Promise) told.catch(threw)
      } catch (error) {
        threw(error)
      }
    }
  }
  return Object.fromEntries(EVENTS.map((name) => [name, tell(name)])) as unknown as Required<ReplicaObserver>
}
