import type { Document } from 'mongodb'
import {
  type CancelRequest,
  cancelText,
  hasPendingInsert,
  isValid,
  oddFields,
  type Pause,
  type PendingInsert,
  parseToken,
  type StoredQuestion,
  typeName,
} from '../../lock/index.js'
import { didYouMean, numbered, typed } from '../../options/index.js'
import { causesText, type LifecycleModel, type Progress } from '../../phases/index.js'
import { formatMs, fromNow } from '../../time/index.js'
import { idTyped } from '../system/document-id.js'
import { type Condition, conditionOf } from './condition.js'
import { undeliveredOf, undeliveredText } from './undelivered.js'

/**
 * Explains in one sentence for people what a document waits for: `Sleeps, due in 3 s, waiting for 'certificate not Ready'
 * since 2 min.`
 * @param serverNow the server's time, which everything is judged by
 * @param lockTimeoutMs the lockTimeout in force
 * @param asked the pauses that apply to it; its owner's request to its holder
 */
export function explain(
  document: Document,
  model: LifecycleModel,
  serverNow: Date,
  lockTimeoutMs: number,
  {
    pauses = [],
    cancel,
  }: { readonly pauses?: readonly Pause[] | undefined; readonly cancel?: CancelRequest | undefined } = {},
): string {
  const condition = conditionOf(document, model, serverNow, lockTimeoutMs)
  const paused = pauses.map((pause) => `${pausedSentence(pause, pauses, model.name, document, serverNow)}. `).join('')
  const said =
    pauses.length > 0 && condition.kind === 'due'
      ? dueSince(condition, serverNow)
      : sentence(document, model, serverNow, condition)
  const stops = cancel ? `; its step was ${cancelText(cancel)}, and ends when its handler does` : ''
  const undelivered = undeliveredOf(document, model)
  const tells = undelivered ? ` ${undeliveredText(undelivered, serverNow)}` : ''
  const left = leftNote(document[model.settings.progress], condition, serverNow)
  return `${paused}${said}${stops}${left}${oddNote(document, condition)}.${tells}`
}

/** A note on the values that an insert has left for it. */
function leftNote(progress: unknown, { kind }: Condition, now: Date): string {
  if (kind === 'removed' || !hasPendingInsert(progress)) return ''
  const { set, begin, by, at } = Object((progress as Progress).next) as PendingInsert
  const fields = Object.keys(Object(set))
  const values = fields.length > 0 ? `new values of ${fields.join(', ')}` : 'no new values'
  const again = typeof begin === 'string' ? `, and it begins again in ${begin} should it rest or be parked by then` : ''
  const who = `${typeof by === 'string' ? by : 'somebody'}${isReadable(at) ? ` ${fromNow(at, now)}` : ''}`
  const when = kind === 'held' ? 'goes with the end of this step' : 'goes with its next claim'
  return `; an insert by ${who} ${when}: ${values}${again}`
}

const PAUSED_WITH = {
  all: ' with everything',
  lifecycle: ' with its lifecycle',
  phase: ' with its phase',
  document: '',
} as const

function pausedSentence(
  pause: Pause,
  all: readonly Pause[],
  lifecycle: string,
  { _id, phase }: Document,
  now: Date,
): string {
  const { what, by, since, reason } = pause
  const whose = all.some((other) => other.what === what && other !== pause) ? ` --of ${typed(by)}` : ''
  const scope = {
    all: '--all',
    lifecycle: typed(lifecycle),
    phase: `${typed(lifecycle)} --phase ${typed(String(phase))}`,
    document: `${typed(lifecycle)} ${idTyped(_id)}`,
  }
  const resume = `resumed (phaselock resume ${scope[what]}${whose})`
  const end = pause.until ? `until that ends ${until(pause.until, now)}, or it is ${resume}` : `until it is ${resume}`
  const why = reason === null ? '' : `: '${reason}'`
  return `Paused${PAUSED_WITH[what]} by ${by} ${fromNow(since, now)}${why}; no step of it begins ${end}`
}

/** The author and the reason of a pause, in a few words. */
export const whyPaused = ({ by, reason }: Pause): string => `paused by ${by}${reason === null ? '' : `: ${reason}`}`

function sentence(document: Document, model: LifecycleModel, now: Date, condition: Condition): string {
  const phase: string = document['phase']
  const progress: Progress = document[model.settings.progress] ?? {}
  switch (condition.kind) {
    case 'unknownPhase': {
      const rename = model.renames.find((one) => one.from === condition.phase)
      if (rename) {
        return `Its phase '${rename.from}' is called ${rename.to} in this version of ${model.name}: the next look moves it there if nobody holds it`
      }
      return `Its phase '${condition.phase}' is unknown to ${model.name}${didYouMean(condition.phase, model.phases.keys()).replace(/\?$/, '')}: it is never claimed and never changed until its phase is one of ${[...model.phases.keys()].join(', ')}`
    }
    case 'removed': {
      const { from, at } = condition
      const was = `${from === undefined ? '' : ` from ${from}`}${isReadable(at) ? ` ${fromNow(at, now)}` : ''}`
      return `Removed${was}: it is deleted when its callbacks have been told, and nothing revives it until then`
    }
    case 'broken':
      return `Its shape is broken: '${condition.field}' is ${condition.found}, expected ${EXPECTED[condition.field] ?? 'an object written by Phaselock'}; ${condition.field === 'lockedAt' ? 'replicas look for such documents and repair them within ten minutes, phaselock check --repair does so at once' : 'it is left alone until a person corrects that'}`
    case 'parked':
      return `Parked because ${parkedReason(progress, model, (reason) => `'${reason}'`)}: it waits for a person (unpark)${orItsOwner(document, model)}${unknownPhaseNote(document, model)}`
    case 'held':
      return `Held by ${holder(condition.by)}${typeof progress.step === 'string' ? `, at its step '${progress.step}'` : ''}: the lease was taken or renewed ${fromNow(condition.renewedAt, now)} and ends ${until(condition.until, now)} unless it is renewed${ruleNote(document, model, (moveTo) => `it goes to ${moveTo} as soon as nobody holds it`)}`
    case 'sleeping':
      if (condition.unanswerable !== undefined)
        return `Waits for an answer that nobody can give: its '${model.settings.progress}.question' ${condition.unanswerable}; phaselock wake ${idTyped(document['_id'])} runs its step, which asks again${ruleNote(document, model, (moveTo) => `${nextLook(moveTo)} before that`)}`
      return `Sleeps, due ${until(condition.until, now)}${why(progress, model, now)}${deadlineNote(document, model, now)}${ruleNote(document, model, (moveTo) => `${nextLook(moveTo)} before that`)}`
    case 'asking': {
      const { question } = condition
      const answer = `phaselock answer ${idTyped(document['_id'])} ${question.options.length > 0 ? '<option>' : '<text>'}`
      return `Asks ${askedText(question, (text) => `'${text}'`)} since ${age(question.askedAt, now)}: it waits for an answer (${answer})${timeoutNote(question, now)}${ruleNote(document, model, (moveTo) => `${nextLook(moveTo)} before that`)}`
    }
    case 'due': {
      const rule = ruleFor(document, model)
      if (rule) return `Its owner wants ${rule.when}: the next look moves it to ${rule.moveTo}`
      return `${dueSince(condition, now)}: the next replica that looks runs ${typeof progress.step === 'string' ? `the step '${progress.step}' of ` : ''}${phase}; if it stays that way, no replica of ${model.name} is running or all are busy`
    }
    case 'resting':
      return resting(document, model, now, phase)
    case 'final':
      return condition.removedAt
        ? `Final: removed ${until(condition.removedAt, now)}`
        : 'Final: the next look removes it'
  }
}

/** A question in a few words: `Ship it? (yes or no), of ops`. */
export function askedText({ question, options, to, times }: StoredQuestion, said = (text: string) => text): string {
  const takes = options.length > 0 ? ` (${options.join(' or ')})` : ''
  return `${said(question)}${takes}${to.length > 0 ? `, of ${to.join(' and ')},` : ''}${times > 1 ? ` for the ${times}. time` : ''}`
}

function timeoutNote({ deadline, onTimeout }: StoredQuestion, now: Date): string {
  if (!deadline) return ', for as long as that takes'
  return `; its time is over ${until(deadline, now)}${onTimeout === null ? '' : `, then '${onTimeout}' counts`}`
}

/** The time since which it is due: `Due since 12 s`. */
export function dueSince({ since, expired }: Extract<Condition, { kind: 'due' }>, now: Date): string {
  const left = expired ? ` (the lease of ${holder(expired)} has run out)` : ''
  return `Due${since && since <= now ? ` since ${age(since, now)}` : ''}${left}`
}

const EXPECTED: Readonly<Record<string, string>> = { phase: 'a string', lockedAt: 'a date, or nothing' }

function resting(document: Document, model: LifecycleModel, now: Date, phase: string): string {
  const rule = ruleFor(document, model)
  if (rule) return `Its owner wants ${rule.when}: the next look moves it to ${rule.moveTo}`
  const ways = waysOut(document, model)
  const { state } = document
  const wants =
    state == null
      ? 'no state is set'
      : typeof state === 'string'
        ? `its owner wants ${state}`
        : `its state is ${typeName(state)}, which counts as none: expected a string`
  const waits = ways ? `waits for its owner's state: ${ways}` : 'no state leads out of here'
  return `Rests in ${phase} (${wants}); ${waits}${deadlineNote(document, model, now)}`
}

/** The rule that moves it, by the state that its owner wants. */
export function ruleFor(document: Document, model: LifecycleModel) {
  return model.rules.find((rule) => rule.when === document['state'] && rule.from.includes(document['phase']))
}

/** The effect of the state that its owner wants; empty if no rule acts on it. */
function ruleNote(document: Document, model: LifecycleModel, how: (moveTo: string) => string): string {
  const rule = ruleFor(document, model)
  return rule ? `; its owner wants ${rule.when}, so ${how(rule.moveTo)}` : ''
}

/** A note for a document in a phase that this version lacks: if it is parked, it stays where it is even after an unpark. */
export function unknownPhaseNote({ phase }: Document, { name, phases, renames }: LifecycleModel): string {
  if (phases.has(phase) || renames.some(({ from }) => from === phase)) return ''
  return `; its phase '${phase}' is unknown to ${name} in this version, so no replica of it claims the document: give it one of ${[...phases.keys()].join(', ')}`
}

const nextLook = (moveTo: string) => `the next look moves it to ${moveTo}`

/** The states that lead out of its phase: `Stopped leads to Stopping, Deleted leads to Deleting`. */
function waysOut({ phase }: Document, model: LifecycleModel): string {
  const ways = model.rules.filter((rule) => rule.from.includes(phase))
  return ways.map((rule) => `${rule.when} leads to ${rule.moveTo}`).join(', ')
}

function orItsOwner(document: Document, model: LifecycleModel): string {
  const ways = waysOut(document, model)
  return ruleNote(document, model, nextLook) || (ways && `, or for its owner's state: ${ways}`)
}

/** True if the notes on steps in its progress don't apply. */
const hasNoWhy = ({ kind }: Condition): boolean => kind === 'broken' || kind === 'unknownPhase' || kind === 'removed'

/**
 * The reason why a document is parked, tried again or waiting, in a few words: `error 3 of 20: connect ECONNREFUSED`. Undefined if nothing
 * is stored.
 * @param condition its own
 */
export function whyOf(document: Document, model: LifecycleModel, condition: Condition, now: Date): string | undefined {
  if (hasNoWhy(condition)) return undefined
  const progress: Progress = document[model.settings.progress] ?? {}
  if (condition.kind === 'parked') return parkedReason(progress, model)
  if (condition.kind === 'asking') return `asks ${askedText(condition.question)}`.replace(/,$/, '')
  const { error, waitingFor, waitingSince } = progress
  if (error?.message)
    return `error ${text(progress.attempts ?? 1)} of ${model.settings.maxAttempts}: ${text(error.message)}${causesText(error)}`
  if (!waitingFor) return undefined
  return `waits for ${text(waitingFor)}${isReadable(waitingSince) ? `, since ${age(waitingSince, now)}` : ''}`
}

function parkedReason(progress: Progress, model: LifecycleModel, said = (reason: string) => reason): string {
  if (hasPendingInsert(progress))
    return 'the server refuses what an insert has left for it (a validator, a unique index, its size)'
  const history = Array.isArray(progress.history) ? progress.history : []
  const last = history.findLast((entry) => entry?.outcome === 'park')
  const reason = last?.reason ?? progress.error?.message
  if (reason) return said(text(reason))
  const claims = Number(progress.claims ?? 0)
  return claims > model.settings.maxClaims
    ? `it was claimed ${numbered(claims - 1, 'time')} without a recorded outcome, and can't be written any more (its size, a validator)`
    : 'somebody set its lockedAt to 9999-12-31'
}

function why(progress: Progress, model: LifecycleModel, now: Date): string {
  if (progress.error?.message) {
    return `, after error ${text(progress.attempts ?? 1)} of ${model.settings.maxAttempts}: '${text(progress.error.message)}'${causesText(progress.error)}`
  }
  const { steps } = progress
  if (!progress.waitingFor) return steps ? `, as it has taken ${text(steps)} steps in a row without a new phase` : ''
  const since = isReadable(progress.waitingSince) ? ` since ${age(progress.waitingSince, now)}` : ''
  return `, waiting for '${text(progress.waitingFor)}'${since}`
}

/** The deadline of its phase; undefined: it has none, or hasn't entered the phase yet. */
export function deadlineOf(
  document: Document,
  model: LifecycleModel,
): { readonly at: Date; readonly moveTo: string } | undefined {
  const deadline = model.phases.get(document['phase'])?.deadline
  const since = document[model.settings.progress]?.since
  if (!deadline || !isReadable(since)) return undefined
  return { at: new Date(since.getTime() + deadline.afterMs), moveTo: deadline.moveTo }
}

function deadlineNote(document: Document, model: LifecycleModel, now: Date): string {
  const deadline = deadlineOf(document, model)
  return deadline ? `; at its deadline, ${until(deadline.at, now)}, it goes to ${deadline.moveTo}` : ''
}

function holder(token: string): string {
  const parts = parseToken(token)
  return parts ? `${parts.replica} (claim ${parts.claim}, step ${parts.step})` : token
}

const age = (then: Date, now: Date) => formatMs(Math.max(0, now.getTime() - then.getTime()))

/** A relative time, with the date if it is a day away or more. */
function until(then: Date, now: Date): string {
  if (!isValid(then)) return 'at a date outside the range of JavaScript'
  const isFar = Math.abs(then.getTime() - now.getTime()) >= A_DAY_MS
  return `${fromNow(then, now)}${isFar ? ` (${then.toISOString()})` : ''}`
}
const A_DAY_MS = 86_400_000

const isReadable = (date: unknown): date is Date => date instanceof Date && isValid(date)

/** A value as text; an owner may have stored anything there. */
const text = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? String(value)))

/** A note on fields of an unexpected type that do no harm. */
function oddNote(document: Document, condition: Condition): string {
  if (hasNoWhy(condition)) return ''
  const notes = oddFields(document).map(({ field, found, isMended }) =>
    isMended ? `${field} is ${found}, the next claim repairs that` : `${field} is ${found}, it counts as missing`,
  )
  return notes.length > 0 ? ` (${notes.join('; ')})` : ''
}
