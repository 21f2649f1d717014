import type { Db } from 'mongodb'
import { Doorbell, type Listener, type Ring } from 'phaselock/tasks'

/** Keys that have changed: some of a prefix, or all of it; undefined: any key may have. */
export type Changed = { readonly prefix: string; readonly keys: readonly string[] | undefined } | undefined

/** Called by a bell, in the order of what happens. */
export interface Hears {
  readonly changed: (changed: Changed) => void
  /** True: from now on each ring is heard that isn't lost. False: it is deaf, and why. */
  readonly hearing: (isHearing: boolean, error?: unknown) => void
}

/** The doorbell of a store: a hint to other processes that a key was written. No caller waits for it, and it never throws. */
export interface Bell {
  ring(prefix: string, key: string): void
  listen(hears: Hears): { stop(): Promise<void> }
  /** Sends the last rings, within a second. */
  flush(): Promise<void>
}

/** The topic of the rings. Replicas ignore it, because no lifecycle has this name. */
const TOPIC = 'phaselock-state'

/**
 * The doorbell of the database (docs/doorbell.md), under a topic of its own: phases are prefixes, ids are keys without their prefix. Rings in between two
 * that are sent become one, which names no keys if they are many, long, or of several prefixes.
 */
export class MongoBell implements Bell {
  private readonly doorbell: Doorbell
  private hears: Hears | undefined

  constructor(db: Db, listeningDb: Db | undefined, self: string) {
    const onHearing = (hearing: { readonly listening: boolean; readonly error?: unknown }) =>
      this.hears?.hearing(hearing.listening, hearing.error)
    this.doorbell = new Doorbell({ db, listeningDb, mode: 'capped', create: true, self, onHearing })
  }

  ring(prefix: string, key: string): void {
    this.doorbell.ring(ringOf(prefix, key))
  }

  listen(hears: Hears): Listener {
    this.hears = hears
    return this.doorbell.listen([TOPIC], async (ring) => {
      for (const changed of changedIn(ring)) hears.changed(changed)
    })
  }

  flush(): Promise<void> {
    return this.doorbell.flush()
  }
}

/** The longest id that a ring names. */
const LONGEST_ID = 64

function ringOf(prefix: string, key: string): Ring {
  const id = key.slice(prefix.length + 1)
  const ring = { lifecycles: [TOPIC], phases: [prefix] }
  return id.length <= LONGEST_ID ? { ...ring, ids: [id] } : ring
}

function changedIn({ phases, ids }: Ring): readonly Changed[] {
  if (!phases) return [undefined]
  return phases.map((prefix) => ({ prefix, keys: ids?.map((id) => `${prefix}:${id}`) }))
}

/** The doorbell of values in memory: the stores of this process hear each other. */
export class MemoryBell implements Bell {
  private static readonly listeners = new Set<{ readonly bell: MemoryBell; readonly hears: Hears }>()

  ring(prefix: string, key: string): void {
    for (const { bell, hears } of MemoryBell.listeners) if (bell !== this) hears.changed({ prefix, keys: [key] })
  }

  listen(hears: Hears): { stop(): Promise<void> } {
    const listener = { bell: this, hears }
    MemoryBell.listeners.add(listener)
    hears.hearing(true)
    return {
      stop: async () => {
        MemoryBell.listeners.delete(listener)
      },
    }
  }

  async flush(): Promise<void> {}
}
