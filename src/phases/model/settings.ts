import type { Document } from 'mongodb'
import {
  type BackOffRule,
  CALLBACK_NAMES,
  type CallbackName,
  DEFAULT_BACK_OFF,
  type KeyLimit,
  MOST_SLOTS,
  type Rate,
} from '../../lock/index.js'
import { readOptions, shown, t } from '../../options/index.js'
import { RESERVED_FIELDS } from '../outcome/outcome.js'
import type { LimitNode } from './check-graph.js'

/** A lifecycle's settings as the engine uses them: milliseconds and counts, every default filled in. */
export interface LifecycleSettings {
  readonly lockTimeoutMs: number
  readonly stepTimeoutMs: number
  readonly maxAttempts: number
  readonly maxClaims: number
  readonly concurrency: number
  readonly legacyWriters: boolean
  readonly child?: boolean | undefined
  readonly progress: string
  readonly backOff: BackOffRule
  readonly limits?: readonly LimitNode[] | undefined
  readonly maxActive?: number | undefined
  readonly priorityBy?: string | undefined
  /** The field by whose values claims take turns, also where `limitBy` is declared: claims look for documents of those values that have slots. */
  readonly fairBy?: string | undefined
  readonly limitBy?: string | undefined
  /** The owner's fields by whose values people list documents. */
  readonly search?: readonly string[] | undefined
  readonly each?: number | KeyLimit | undefined
  readonly callbacks?: readonly CallbackName[] | undefined
  readonly callbackTimeoutMs?: number | undefined
  /** The events that are kept of its documents beyond their histories; undefined: none. */
  readonly events?: EventsSetting | undefined
  /** Names the cause of an error. */
  readonly causeOf?: CauseOf | undefined
  /** The owner's fields that handlers read; undefined: the whole document. */
  readonly reads?: readonly string[] | undefined
}

/** Names the cause of an error that a handler threw; undefined: Phaselock does. */
export type CauseOf = (error: unknown) => string | undefined

/** The events that are kept: the kind, the time and the number. */
export interface EventsSetting {
  readonly keep: 'sampled' | 'full'
  readonly forMs: number
  readonly most: number
}

const RESERVED_NAMES: readonly string[] = RESERVED_FIELDS.filter((name) => name !== 'progress')

const matchingText = (pattern: RegExp, what: string) =>
  t.where<string>((value) => typeof value === 'string' && pattern.test(value), t.expecting(what))

export const fieldName = t.checked(
  matchingText(/^[A-Za-z_][A-Za-z0-9_]*$/, 'a field name of letters, digits and _'),
  (name) => !RESERVED_NAMES.includes(name),
  t.expecting('a name other than those that Phaselock uses already'),
)

const aShare = t.where<number>(
  (value) => typeof value === 'number' && value >= 0.01 && value <= 1,
  t.expecting('a share from 0.01 to 1'),
)

export const limitName = matchingText(
  /^[^$.\0][^\0]{0,199}$/,
  'the name of a limit: 1 to 200 characters, none of them NUL, the first neither $ nor .',
)
const slotCount = t.whole(1, MOST_SLOTS)

const nameOf = (limit: LimitNode): string => (typeof limit === 'string' ? limit : limit.name)

/** Limits by their names, some with their slots. Each once: a phase that needs more of one sets `slots`. */
export const limitList = t.checked(
  t.list(
    t.chosen<LimitNode>((given) =>
      typeof given === 'string' ? limitName : t.object({ name: limitName, slots: slotCount }),
    ),
    t.expecting("a list of limits, such as ['gitlab-api'] or [{ name: 'gitlab-api', slots: 5 }]"),
  ),
  (limits) => new Set(limits.map(nameOf)).size === limits.length,
  (limits) =>
    `expected each limit once, got ${(limits as LimitNode[]).map(nameOf).join(', ')}; a phase's slots say how many a step needs`,
)
export const phaseLimits = t.partOf({ limits: t.withDefault(limitList, []), slots: t.withDefault(slotCount, 1) })

/** A rate from its text: `100/1m`, a number of starts in a span of time. Undefined: the text isn't a rate. */
export function rateFrom(text: string): Rate | undefined {
  const [, starts = '', span = ''] = /^\s*(\d+)\s*\/\s*(\S+)\s*$/.exec(text) ?? []
  const perMs = t.msOf(span)
  return perMs > 0 && Number(starts) <= MOST_SLOTS ? { starts: Number(starts), perMs } : undefined
}
export const RATE = "how many in a span of time, such as '100/1m' or '5/1s'"

const rate = t.converted(
  t.where<string>((value) => typeof value === 'string' && rateFrom(value) !== undefined, t.expecting(RATE)),
  (text) => rateFrom(text)!,
)
const eachKey = t.chosen<number | KeyLimit>((given) =>
  typeof given === 'object' && given !== null
    ? t.object({ slots: t.optional(slotCount), rate: t.optional(rate) })
    : slotCount,
)

/** The slots or rate of each value of a field (`each`). */
export const eachKeyOf = ({ each }: Pick<LifecycleSettings, 'each'>): KeyLimit | undefined =>
  typeof each === 'number' ? { slots: each } : each

const backOff = t.object({
  share: t.withDefault(aShare, DEFAULT_BACK_OFF.share),
  patience: t.withDefault(t.duration('1s', '24h'), `${DEFAULT_BACK_OFF.patienceMs}ms`),
  firstError: t.withDefault(t.duration('100ms', '24h'), `${DEFAULT_BACK_OFF.firstErrorMs}ms`),
  longestError: t.withDefault(t.duration('100ms', '24h'), `${DEFAULT_BACK_OFF.longestErrorMs}ms`),
  afterSteps: t.withDefault(t.whole(10, 1_000_000_000), DEFAULT_BACK_OFF.afterSteps),
})

/** A field of the owner that puts claims in order. */
const ownerField = t.checked(
  t.where<string>(
    // Every object of JavaScript has a `constructor`: a document without such a field would seem to have one.
    (value) => typeof value === 'string' && /^[A-Za-z_][A-Za-z0-9_]{0,99}$/.test(value) && !(value in Object.prototype),
    t.expecting("the name of a top-level field, such as 'tenantId' (at most 100 characters)"),
  ),
  (name) => !RESERVED_NAMES.includes(name) || name === 'state',
  t.expecting('a field of the owner, not one of those that Phaselock uses'),
)

/** The most fields that documents are listed by, because each has an index that every insert and removal writes. */
const MOST_SEARCHED = 5
const searchList = t.checked(
  t.list(ownerField, t.expecting("a list of field names, such as ['customer']")),
  (fields) => fields.length > 0 && fields.length <= MOST_SEARCHED && new Set(fields).size === fields.length,
  (fields) =>
    `expected 1 to ${MOST_SEARCHED} fields, each once, got ${(fields as string[]).join(', ') || 'none'}: each is an index`,
)

type Keeps = 'off' | 'sampled' | 'full'
type EventsNode =
  | Keeps
  | { readonly keep: Keeps; readonly for?: number | undefined; readonly most?: number | undefined }
const howMany = t.oneOf(['off', 'sampled', 'full'])
const EVENTS_FOR_MS = 7 * 86_400_000
const MOST_EVENTS = 1_000_000

function eventsOf(given: EventsNode | undefined): EventsSetting | undefined {
  const { keep, for: forMs = EVENTS_FOR_MS, most = MOST_EVENTS } = typeof given === 'object' ? given : { keep: given }
  return keep === undefined || keep === 'off' ? undefined : { keep, forMs, most }
}

/** The callbacks, each once; an empty list counts as absent. */
const callbackList = t.converted(
  t.list(t.oneOf(CALLBACK_NAMES), t.expecting(`a list of callbacks (${CALLBACK_NAMES.join(', ')})`)),
  (names) => (names.length > 0 ? [...new Set(names)] : undefined),
)

/** The settings that a lifecycle may declare, besides its graph. Unknown ones are refused by the definition's own check. */
export const settingsSchema = t.object({
  lockTimeout: t.withDefault(t.duration('1s', '24h'), '30s'),
  stepTimeout: t.withDefault(t.duration('100ms', '24h'), '5m'),
  maxAttempts: t.withDefault(t.whole(1, 1_000), 20),
  maxClaims: t.withDefault(t.whole(1, 1_000), 10),
  concurrency: t.withDefault(t.whole(1, 10_000), 32),
  limits: t.optional(limitList),
  maxActive: t.optional(t.whole(1, MOST_SLOTS)),
  backOff: t.withDefault(
    t.checked(
      backOff,
      (rule) => rule.firstError <= rule.longestError,
      'expected firstError to be no longer than longestError',
    ),
    {},
  ),
  priorityBy: t.optional(ownerField),
  fairBy: t.optional(ownerField),
  limitBy: t.optional(ownerField),
  each: t.optional(eachKey),
  search: t.optional(searchList),
  callbacks: t.optional(callbackList),
  events: t.optional(
    t.chosen<EventsNode>((given) =>
      typeof given === 'object' && given !== null
        ? t.object({
            keep: howMany,
            for: t.optional(t.duration('1h', '3650d')),
            most: t.optional(t.whole(1_000, 1_000_000_000)),
          })
        : howMany,
    ),
  ),
  callbackTimeout: t.optional(t.duration('100ms', '1h')),
  causeOf: t.optional(
    t.where<CauseOf>(
      (value) => typeof value === 'function',
      t.expecting("a function that names an error's cause, such as (error) => error.code"),
    ),
  ),
  legacyWriters: t.withDefault(t.flag, false),
  child: t.optional(t.flag),
  reads: t.optional(
    t.list(
      matchingText(/^[^.$][^.]*$/, "the name of a top-level field, such as 'image'"),
      'expected a list of field names',
    ),
  ),
  fields: t.withDefault(t.object({ progress: t.withDefault(fieldName, 'progress') }), {}),
})

const DEFAULT_CALLBACK_TIMEOUT_MS = 30_000
const DEFINED_BESIDE = ['name', 'collection', 'phases', 'rules', 'renamed']

/** Reads the settings; undefined: `problems` has new ones, each with the setting's name, the expected value and the given one. */
export function parseSettings(given: object, problems: string[]): LifecycleSettings | undefined {
  const read = readOptions(settingsSchema, given, { noun: 'setting', also: DEFINED_BESIDE })
  problems.push(...pairProblems(given))
  if ('problems' in read) {
    problems.push(...read.problems)
    return undefined
  }
  const {
    lockTimeout: lockTimeoutMs,
    stepTimeout: stepTimeoutMs,
    fields,
    backOff,
    callbackTimeout,
    events: wanted,
    ...rest
  } = read.options
  const events = eventsOf(wanted)
  const { limitBy, fairBy } = rest
  const searched = rest.search?.find((field) => field === fields.progress)
  for (const [name, field] of Object.entries({ priorityBy: rest.priorityBy, fairBy, limitBy, search: searched }))
    if (field === fields.progress)
      problems.push(
        `${name}: expected a field of the owner, got '${field}', in which Phaselock keeps its own (fields.progress)`,
      )
  const { share, patience: patienceMs, firstError: firstErrorMs, longestError: longestErrorMs, afterSteps } = backOff
  return {
    ...{ ...rest, lockTimeoutMs, stepTimeoutMs, progress: fields.progress },
    ...(events && { events }),
    ...(rest.callbacks && { callbackTimeoutMs: callbackTimeout ?? DEFAULT_CALLBACK_TIMEOUT_MS }),
    ...(limitBy !== undefined && { fairBy: limitBy }),
    backOff: { share, patienceMs, firstErrorMs, longestErrorMs, afterSteps },
  }
}

/** The problems of settings that need, or exclude, each other. They are reported even if single values are wrong. */
function pairProblems(given: LifecycleSettingsGiven): string[] {
  const { limitBy, each, fairBy, callbacks, callbackTimeout } = given
  const problems: string[] = []
  if ((limitBy === undefined) !== (each === undefined))
    problems.push('expected limitBy and each together: the field, and what each of its values has')
  if (limitBy !== undefined && fairBy !== undefined && limitBy !== fairBy)
    problems.push(`limitBy and fairBy: expected the same field, got ${shown(limitBy)} and ${shown(fairBy)}`)
  if (callbackTimeout !== undefined && [callbacks ?? []].flat().length === 0)
    problems.push("callbackTimeout: expected callbacks too, such as ['onMoved']; without any nothing is called")
  if (typeof each === 'object' && each !== null && !('slots' in each) && !('rate' in each))
    problems.push('each: expected slots, a rate or both, got neither')
  return problems
}

type LifecycleSettingsGiven = { readonly [setting in keyof typeof settingsSchema.fields]?: unknown }

/** The projection that reads documents for handlers; undefined: all fields. `ReadDocument` is the matching type. */
export function readProjection({ reads, progress, limitBy }: LifecycleSettings): Document | undefined {
  const ours = limitBy === undefined ? [progress] : [progress, limitBy]
  return reads && Object.fromEntries([...RESERVED_FIELDS, ...ours, ...reads].map((field) => [field, 1]))
}
