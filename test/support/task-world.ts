import type { Db, Document } from 'mongodb'
import { Replica, type ReplicaOptions, type RunnableLifecycle } from '../../src/index.js'
import { eventually, type TestDatabase } from './database.js'

/** What the tests of every task kind have: a database, and the replicas that a test makes. */
export class TaskWorld {
  readonly replicas: Replica[] = []
  database!: TestDatabase

  get db(): Db {
    return this.database.db
  }

  /** A replica as in a process of its own, which isn't started: `until` lets it work. */
  run(lifecycles: readonly RunnableLifecycle[], more: Partial<ReplicaOptions> = {}): Replica {
    const replica = new Replica({ db: this.db, lifecycles, name: `r${this.replicas.length + 1}`, ...more })
    this.replicas.push(replica)
    return replica
  }

  /** Lets the replicas take turns until the check passes. */
  until<T>(check: () => T | Promise<T>, replicas: readonly Replica[] = this.replicas): Promise<T> {
    return eventually(
      async () => {
        await this.beforeTurns()
        for (const replica of replicas) await replica.runOnce()
        return check()
      },
      { timeoutMs: 240_000, everyMs: 50 },
    )
  }

  protected async beforeTurns(): Promise<void> {}

  async end(): Promise<void> {
    await Promise.all(this.replicas.splice(0).map((replica) => replica.stop()))
  }
}

/** `step outcome` of each entry of a document's history, oldest first, with the phase that it led to; waits left out. */
export function historyOf({ progress }: Document): string[] {
  const entries = (progress?.history ?? []) as { step: string | null; outcome: string; to: string; count?: number }[]
  return entries
    .filter(({ outcome }) => outcome !== 'wait')
    .flatMap(({ step, outcome, to, count = 1 }) =>
      // Alike `again`s in a row are one entry.
      Array<string>(count).fill(`${step ?? '-'} ${outcome}${outcome === 'again' ? '' : ` ${to}`}`),
    )
}
