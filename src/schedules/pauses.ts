import { BSON, type Document } from 'mongodb'
import {
  MOST_PAUSES,
  pausesBeside,
  pausesOfOthers,
  type Resuming,
  storePauses,
  withoutPause,
  withPause,
} from '../lock/index.js'
import { numbered } from '../options/index.js'
import { shown } from './definition/read-schedule.js'
import { dateOf, type Pause, present } from './documents.js'
import { InvalidSchedule, PausedByOthers } from './errors.js'

type Paused = { readonly paused?: unknown; readonly pauses?: unknown }

/** What `paused` never means: anything else that a person has written there was meant as a pause. */
const NO_PAUSE = [null, false, 0, '']
/** Matches schedules with a pause, whether in force or not. */
export const PAUSED: Document = { paused: { $nin: NO_PAUSE } }
const isNoPause = { $in: [{ $ifNull: ['$paused', false] }, NO_PAUSE.slice(1)] }
const written = { $cond: [isNoPause, [], [{}]] }
/** The pauses in force of a stored schedule, as an expression. */
export const PAUSES_IN_FORCE: Document = pausesBeside(written)
const count: Document = { $size: PAUSES_IN_FORCE }

/**
 * `null`: paused until somebody resumes it; undefined: not paused. Written by hand, `paused: true` will do, and so will anything
 * else that isn't falsy: whoever wrote it wanted a pause.
 */
export function pauseOf({ paused }: Paused, now: Date): Date | null | undefined {
  if (!paused) return undefined
  const until = dateOf((paused as { until?: unknown }).until)
  return until ? (until > now ? until : undefined) : null
}

/** Since when a schedule is paused; undefined: nobody knows. */
export function pausedSince({ paused, pauses }: Paused): Date | undefined {
  const text = BSON.EJSON.stringify({ paused })
  const isAmong = Array.isArray(pauses) && pauses.some((one) => BSON.EJSON.stringify({ paused: one }) === text)
  const times = (isAmong ? pauses : [paused]).flatMap((one) => dateOf(Object(one).at) ?? [])
  return times.sort((a, b) => a.getTime() - b.getTime())[0]
}

/** Why a run that was due didn't run. */
export function pausedText({ paused }: Paused): string {
  const { reason } = Object(paused) as { reason?: unknown }
  return `the schedule was paused${typeof reason === 'string' && reason ? `: ${reason}` : ''}`
}

/** What a schedule is to be told about a pause that isn't written as one. */
export function pauseWarnings(paused: unknown): string[] {
  if (!paused || paused === true) return []
  if (typeof paused !== 'object' || Array.isArray(paused))
    return [`paused: expected true or { until, reason }, got ${shown(paused)}; treated as true`]
  const { until } = paused as { until?: unknown }
  if (until == null || dateOf(until)) return []
  return [`paused.until: expected a date, got ${shown(until)}; paused until somebody resumes it`]
}

/** A pause to be stored. */
export interface NewSchedulePause {
  readonly until?: Date | undefined
  readonly reason?: string | undefined
  readonly by?: string | undefined
}

/** A schedule's pauses around an edit of them: those that were in force, and those that are since. */
export interface PauseChange {
  /** Those that were in force. */
  readonly before: readonly Pause[]
  /** Those that are in force since. */
  readonly after: readonly Pause[]
}

/** Matches schedules that can take a pause: by the server's clock one until a time that has passed would be none. */
export const canPause = ({ until, by }: NewSchedulePause): Document => ({
  $expr: {
    $and: [
      ...(until ? [{ $gt: [until, '$$NOW'] }] : []),
      { $lt: [{ $size: pausesOfOthers(PAUSES_IN_FORCE, by ?? null) }, MOST_PAUSES] },
    ],
  },
})

/** Stages that add a pause. @throws InvalidSchedule */
export function pausing(id: string, { until, reason, by }: NewSchedulePause): Document[] {
  if (until !== undefined && !dateOf(until))
    throw new InvalidSchedule(id, [`until: expected a date, got ${String(until)}`])
  const pause = { $mergeObjects: [{ at: '$$NOW' }, { $literal: present({ until, reason }) }] }
  return storePauses(withPause(PAUSES_IN_FORCE, by ?? null, pause))
}

/** Why a schedule that is there wasn't paused. */
export const notPausable = (id: string, { until }: NewSchedulePause, pauses: readonly Pause[]): InvalidSchedule =>
  pauses.length >= MOST_PAUSES
    ? new InvalidSchedule(id, [`it has ${numbered(pauses.length, 'pause')} already`])
    : new InvalidSchedule(id, [`until: expected a time in the future, got ${until?.toISOString()}`])

const left = (whose: Resuming): Document => withoutPause(PAUSES_IN_FORCE, whose)

/** Matches schedules of whose pauses one is meant. */
export const isMeant = (whose: Resuming): Document => ({ $expr: { $lt: [{ $size: left(whose) }, count] } })

/** Matches also those without a pause. */
export const isMeantOrNone = (whose: Resuming): Document => ({
  $expr: { $or: [{ $eq: [count, 0] }, { $lt: [{ $size: left(whose) }, count] }] },
})

/** Stages that end the pause that is meant. */
export const resuming = (whose: Resuming): Document[] => storePauses(left(whose))

/** Why a schedule that is there wasn't resumed. */
export const notResumable = (id: string, pauses: readonly Pause[], { of }: Resuming): PausedByOthers =>
  new PausedByOthers(
    id,
    pauses.map(({ by }) => by),
    of,
  )
