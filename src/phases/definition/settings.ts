import type { Document } from 'mongodb'
import { z } from 'zod'
import { type BackOffRule, DEFAULT_BACK_OFF } from '../../lock/index.js'
import { duration, expecting, flag, readOptions, whole } from '../../options/index.js'
import { RESERVED_FIELDS } from '../outcome.js'

/** A lifecycle's settings as the engine uses them: milliseconds and counts, every default filled in. */
export interface LifecycleSettings {
  readonly lockTimeoutMs: number
  readonly stepTimeoutMs: number
  readonly maxAttempts: number
  readonly maxClaims: number
  readonly concurrency: number
  readonly legacyWriters: boolean
  readonly progress: string
  readonly backOff: BackOffRule
  /** Fields of the owner that handlers read; undefined: the whole document. */
  readonly reads?: readonly string[] | undefined
}

const RESERVED_NAMES: readonly string[] = RESERVED_FIELDS.filter((name) => name !== 'progress')

export const fieldName = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'expected a field name of letters, digits and _')
  .refine((name) => !RESERVED_NAMES.includes(name), 'expected a name other than those that Phaselock uses already')

const A_SHARE = expecting('a share from 0.01 to 1')

const backOff = z.strictObject({
  share: z.number(A_SHARE).min(0.01, A_SHARE).max(1, A_SHARE).default(DEFAULT_BACK_OFF.share),
  patience: duration('1s', '24h').default(DEFAULT_BACK_OFF.patienceMs),
  firstError: duration('100ms', '24h').default(DEFAULT_BACK_OFF.firstErrorMs),
  longestError: duration('100ms', '24h').default(DEFAULT_BACK_OFF.longestErrorMs),
  afterSteps: whole(10, 1_000_000_000).default(DEFAULT_BACK_OFF.afterSteps),
})

/** Settings that a lifecycle may declare, besides its graph. Unknown ones are refused by the definition's own check. */
export const settingsSchema = z.strictObject({
  lockTimeout: duration('1s', '24h').default(30_000),
  stepTimeout: duration('100ms', '24h').default(300_000),
  maxAttempts: whole(1, 1_000).default(20),
  maxClaims: whole(1, 1_000).default(10),
  concurrency: whole(1, 10_000).default(32),
  backOff: backOff
    .refine((rule) => rule.firstError <= rule.longestError, 'expected firstError to be no longer than longestError')
    .prefault({}),
  legacyWriters: flag.default(false),
  reads: z
    .array(
      z.string().regex(/^[^.$][^.]*$/, "expected the name of a top-level field, such as 'image'"),
      'expected a list of field names',
    )
    .optional(),
  fields: z.strictObject({ progress: fieldName.default('progress') }).default({ progress: 'progress' }),
})

const DEFINED_BESIDE = ['name', 'collection', 'phases', 'rules', 'renamed']

/** The settings; undefined: `problems` has new ones, each with the setting's name, what was expected and what came. */
export function parseSettings(given: object, problems: string[]): LifecycleSettings | undefined {
  const read = readOptions(settingsSchema, given, { noun: 'setting', also: DEFINED_BESIDE })
  if ('problems' in read) {
    problems.push(...read.problems)
    return undefined
  }
  const { lockTimeout: lockTimeoutMs, stepTimeout: stepTimeoutMs, fields, backOff, ...rest } = read.options
  const { share, patience: patienceMs, firstError: firstErrorMs, longestError: longestErrorMs, afterSteps } = backOff
  return {
    ...{ ...rest, lockTimeoutMs, stepTimeoutMs, progress: fields.progress },
    backOff: { share, patienceMs, firstErrorMs, longestErrorMs, afterSteps },
  }
}

/** The projection with which documents are read for handlers; undefined: all of them. `ReadDocument` is the matching type. */
export function readProjection({ reads, progress }: LifecycleSettings): Document | undefined {
  return reads && Object.fromEntries([...RESERVED_FIELDS, progress, ...reads].map((field) => [field, 1]))
}
