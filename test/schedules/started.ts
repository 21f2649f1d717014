import { afterEach } from '@jest/globals'
import { lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { type ScheduleFields, starts, type TaskWithCallbacks } from '../../src/schedules/index.js'
import { useDatabase } from '../support/database.js'
import { dueSchedule, useSchedulers } from './support.js'

export interface Night {
  _id: string
  day: string
  counters?: Record<string, unknown>
  result?: unknown
}
export const night = lifecycleOf<Night>().define({
  name: 'night',
  collection: 'Night',
  phases: {
    Counting: { next: ['Counted', 'Miscounted'] },
    Counted: { rest: true },
    Miscounted: { rest: true, failed: true },
  },
})
export type Counting = typeof night.$step.Counting
export const counted = async (_doc: unknown, step: Counting) => step.moveTo('Counted')

export interface Given {
  readonly options?: Parameters<typeof starts>[2]
  readonly document?: unknown
  readonly counting?: (doc: Night, step: Counting) => Promise<ReturnType<Counting['wait']>>
  readonly fields?: Partial<ScheduleFields>
  readonly callbacks?: Partial<TaskWithCallbacks>
  /** Stands for the lifecycle's own `insert`, which it is given. */
  readonly insert?: (insert: (doc: never) => Promise<unknown>, doc: never, nights: object) => Promise<unknown>
}

/** A schedule whose task starts documents of a lifecycle, with a replica for each of the two. */
export function useStarted() {
  const database = useDatabase()
  const scheduler = useSchedulers()
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const stored = () => database.db.collection<Night & { phase: string; lockedAt?: Date }>('Night')
  const runs = () => database.db.collection<{ _id: string }>('runs')

  /** A schedule that is due and was looked at, the replica that runs it, and the one that runs what it starts. */
  async function started({ options, document, counting = counted as never, fields, callbacks, insert }: Given = {}) {
    const nights = night.handle({ Counting: counting as never })
    if (insert) {
      const owner = nights.owner.bind(nights)
      const withInsert = () => {
        const client = owner()
        const own = client.insert.bind(client) as never
        return Object.assign(Object.create(client), { insert: (doc: never) => insert(own, doc, nights) })
      }
      Object.assign(nights, { owner: withInsert })
    }
    const replica = new Replica({
      ...{ db: database.db, lifecycles: [nights], name: 'nights', logger: silentLogger, doorbell: 'off' },
      grace: '100ms',
    })
    replicas.push(replica)
    await replica.prepare()
    const make =
      document ?? ((args: { day: string }, run: { trigger: string }) => ({ day: `${args.day} ${run.trigger}` }))
    const work = starts(nights, make as never, options)
    const one = scheduler(database.db, { tasks: { work: callbacks ? { run: work, ...callbacks } : work } })
    const due = await dueSchedule(one, database.db, { args: { day: 'monday' }, ...fields })
    await one.replica.runOnce()
    return { nights, replica, one, due, id: `s@${due.toISOString()}` }
  }

  const latest = async ({ one }: Awaited<ReturnType<typeof started>>) => (await one.schedules.runs('s'))[0]!
  /** Lets whatever sleeps look again. */
  async function lookAgain({ one, replica }: Awaited<ReturnType<typeof started>>) {
    await runs().updateMany({ phase: { $in: ['Queued', 'Running'] } }, { $set: { lockedAt: new Date(0) } })
    await replica.runOnce()
    await one.replica.runOnce()
  }

  return { database, scheduler, replicas, stored, runs, started, latest, lookAgain }
}

export type Started = Awaited<ReturnType<ReturnType<typeof useStarted>['started']>>
