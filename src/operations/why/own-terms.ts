import type { Document } from 'mongodb'
import {
  hasToken,
  leaseStateOf,
  MOST_OPEN,
  outboxIn,
  Paused,
  parseToken,
  tokenOf,
  typeName,
  underHold,
} from '../../lock/index.js'
import { didYouMean } from '../../options/index.js'
import { type Progress, troubleOf } from '../../phases/index.js'
import { fromNow } from '../../time/index.js'
import { LEGACY_WRITER } from '../inspect/condition.js'
import { deadlineOf, ruleFor, whyOf, whyPaused } from '../inspect/explain.js'
import { cancelOf } from '../inspect/find.js'
import type { ReplicaState } from '../inspect/replicas.js'
import type { Entry, Judged, Known } from './facts.js'
import { fails, holds, isUnknown, type Term } from './term.js'

/* The terms that a document's own fields decide, with the pauses and cancels in force: by the condition that lists and counts show, too. */

export function shapeTerm({ found: { condition, document } }: Judged): Term {
  if (condition.kind !== 'broken') return holds('shape', 'its fields have the shape that the protocol needs')
  const { field, found } = condition
  return fails('shape', `its '${field}' is ${found}`, { field, found, value: typeName(document[field]) })
}

export function removalTerm({ found: { condition, now } }: Judged): Term {
  if (condition.kind !== 'removed') return holds('removal', "it isn't removed")
  const { from = null, at = null } = condition
  const when = at ? ` ${fromNow(at, now)}` : ''
  return fails('removal', `it was removed${when}, and only has callbacks to deliver`, { from, at })
}

export function parkTerm({ model, found: { condition, document, now } }: Judged): Term {
  if (condition.kind !== 'parked') return holds('park', "it isn't parked")
  const { history } = progressOf(document, model.settings.progress)
  const last = (Array.isArray(history) ? history : []).findLast((entry) => entry?.outcome === 'park')
  const reason = whyOf(document, model, condition, now) ?? null
  const by = typeof last?.by === 'string' ? last.by : null
  const at = last?.at instanceof Date ? last.at : null
  const who = by === null ? '' : ` by ${by}${at ? ` ${fromNow(at, now)}` : ''}`
  return fails('park', `it is parked${who}: ${reason}`, {
    reason,
    by,
    at,
    cause: troubleOf(document, model)?.cause ?? null,
  })
}

export function phaseTerm({ model, found: { condition, document } }: Judged): Term {
  const { phase } = document
  const known = [...model.phases.keys()]
  if (typeof phase !== 'string' || condition.kind === 'removed')
    return isUnknown('phase', 'it is in no phase of its lifecycle')
  if (model.phases.has(phase)) return holds('phase', `${phase} is a phase of ${model.name}`, { phase })
  const rename = model.renames.find(({ from }) => from === phase)
  if (rename)
    return fails('phase', `${phase} is called ${rename.to} now: the next look moves it there`, { phase, to: rename.to })
  const near = didYouMean(phase, known).replace(/\?$/, '')
  return fails('phase', `its phase '${phase}' is unknown to ${model.name}${near}`, { phase, known })
}

export function leaseTerm({ model, found, inForce }: Judged, replicas: Known<readonly ReplicaState[]>): Term {
  const { document, now } = found
  // A document in another condition (of an unknown phase, removed) may be held, too.
  const state = leaseStateOf(document, { ...model.settings, ...inForce.terms }, now)
  if (state.kind === 'neverDue' && hasToken(document)) {
    const by = tokenOf(document) ?? typeName(document['lockedBy'])
    return isUnknown('lease', `${by} has stored its token, and until when it holds it can't be read`, { by })
  }
  if (state.kind !== 'held') {
    const expired = state.kind === 'due' ? state.expired : undefined
    const left = expired === undefined ? '' : `; the lease of ${expired} has run out`
    return holds('lease', `no replica holds it${left}`, expired === undefined ? {} : { expired })
  }
  const { by = LEGACY_WRITER, renewedAt, until } = state
  const cancel = cancelOf(document['_id'], by, inForce.cancels)
  const name = parseToken(by)?.replica
  const holder = 'value' in replicas ? replicas.value.find((one) => one.name === name) : undefined
  const alive = holder ? holder.live : 'unknown'
  const { step = null } = progressOf(document, model.settings.progress)
  const stop = cancel && { by: cancel.by, reason: cancel.reason }
  const life = holder ? `, which is ${holder.live ? 'live' : 'dead'} (seen ${fromNow(holder.seenAt, now)})` : ''
  const asked = cancel ? `; ${cancel.by} has asked it to stop` : ''
  return fails('lease', `${by} holds it${life}, until ${fromNow(until, now)} unless it renews that${asked}`, {
    ...{ by, replica: name ?? null, alive, seenAt: holder?.seenAt ?? null, step },
    ...{ renewedAt, until, askedToStop: stop ?? null },
  })
}

export function handlerTerm({ model, found: { document } }: Judged, entry: Known<Entry>): Term {
  const phase = model.phases.get(document['phase'])
  if (!phase) return isUnknown('handler', 'it is in no phase of its lifecycle')
  const { name, kind } = phase
  if (kind === 'resting') return fails('handler', `it rests in ${name}: no step runs there`, { kind })
  if (kind === 'final') return fails('handler', `${name} is final: no step runs there`, { kind })
  if ('value' in entry && entry.value.onlyNamed.includes(name) && phase.next.length === 0)
    return isUnknown('handler', `of ${name} only the name is known: an older version has registered it`, { kind })
  return holds('handler', `${name} has a handler`, { kind })
}

export function pauseTerm({ found: { document }, inForce }: Judged): Term {
  const pauses = new Paused(inForce.pauses).of(document['phase'], document['_id'])
  if (pauses.length === 0) return holds('pause', "it isn't paused")
  const evidence = { pauses: pauses.map(({ what, by, reason, since, until }) => ({ what, by, reason, since, until })) }
  return fails('pause', pauses.map((one) => `its ${WHAT[one.what]} is ${whyPaused(one)}`).join('; '), evidence)
}
const WHAT = { all: 'system', lifecycle: 'lifecycle', phase: 'phase', document: 'document' } as const

/** What a sleeping document waits for. */
export type SleepKind =
  | 'error'
  | 'question'
  | 'children'
  | 'document'
  | 'outbox'
  | 'wait'
  | 'steps'
  | 'later'
  | 'unanswerable'
  | 'unknown'

/** @param awaited what is known of the children or the document that it waits for */
export function sleepTerm({ model, found }: Judged, awaited: Document | undefined): Term {
  const { condition, document, now } = found
  if (condition.kind !== 'sleeping' && condition.kind !== 'asking')
    return holds('sleep', condition.kind === 'due' ? 'its time has come' : "it doesn't sleep")
  const progress = progressOf(document, model.settings.progress)
  const { waitingFor, waitingOn, waitingSince, attempts, steps } = progress
  const why = whyOf(document, model, condition, now) ?? null
  if (condition.kind === 'asking') {
    const { id, question, options, to, deadline, onTimeout, askedAt } = condition.question
    const evidence = { id, question, options, to, deadline, onTimeout, askedAt }
    return fails('sleep', `it ${why}`, { kind: 'question' satisfies SleepKind, ...evidence })
  }
  const { until, unanswerable } = condition
  const kind = kindOfSleep(document, progress, unanswerable)
  const evidence = {
    ...{ kind, until, why, on: waitingOn ?? null, since: waitingSince ?? null },
    ...(kind === 'error' && {
      error: attempts ?? 1,
      of: model.settings.maxAttempts,
      cause: troubleOf(document, model)?.cause ?? null,
    }),
    ...(kind === 'steps' && { steps }),
    ...(kind === 'wait' && { waitingFor }),
    ...(unanswerable !== undefined && { unanswerable }),
    ...(awaited && { awaited }),
  }
  const what = unanswerable === undefined ? `until ${fromNow(until, now)}` : 'until it is answered, which nobody can do'
  return fails('sleep', `it sleeps ${what}${why === null ? '' : `: ${why}`}`, evidence)
}

function kindOfSleep(document: Document, progress: Progress, unanswerable: unknown): SleepKind {
  if (unanswerable !== undefined) return 'unanswerable'
  if (progress.error?.message) return 'error'
  if (progress.awaits) return progress.awaits.kind === 'children' ? 'children' : 'document'
  if (outboxIn(progress).open.length >= MOST_OPEN) return 'outbox'
  if (progress.waitingFor !== undefined) return 'wait'
  if (progress.steps) return 'steps'
  return document['fence'] == null || progress.next !== undefined ? 'later' : 'unknown'
}

/** Whether a rule or a deadline moves it before a step of it runs. */
export function ruleTerm({ model, found: { document, condition, now } }: Judged, entry: Known<Entry>): Term {
  if (condition.kind === 'broken' || condition.kind === 'removed' || condition.kind === 'unknownPhase')
    return isUnknown('rule', 'it is in no phase of its lifecycle')
  const rule = ruleFor(document, model)
  const open = model.settings.callbacks ? outboxIn(document[model.settings.progress]).open.length : 0
  if (rule && open >= MOST_OPEN)
    return holds('rule', `its owner wants ${rule.when}, but ${open} calls of its callbacks are to be delivered first`, {
      ...{ when: rule.when, moveTo: rule.moveTo, open },
    })
  if (rule) {
    const when = condition.kind === 'held' ? 'as soon as nobody holds it, it moves' : 'the next look moves it'
    const evidence = { kind: 'rule', when: rule.when, moveTo: rule.moveTo }
    return fails('rule', `its owner wants ${rule.when}: ${when} to ${rule.moveTo}`, evidence)
  }
  const deadline = deadlineOf(document, model)
  if (!deadline) return holds('rule', 'no rule or deadline is about to move it')
  const step = 'value' in entry ? entry.value.clockStep : undefined
  const { moveTo } = deadline
  const at = underHold(deadline.at, step)
  const evidence = { kind: 'deadline', at, moveTo }
  if (at > now) return holds('rule', `its deadline is ${fromNow(at, now)}`, evidence)
  return fails('rule', `its deadline was ${fromNow(at, now)}: the next look moves it to ${moveTo}`, evidence)
}

export const progressOf = (document: Document, field: string): Progress => Object(document[field]) as Progress
