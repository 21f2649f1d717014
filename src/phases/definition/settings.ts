import { z } from 'zod'
import { type BackOffRule, DEFAULT_BACK_OFF } from '../../lock/index.js'
import { durationMs } from '../../time/index.js'
import { meant } from './check-keys.js'

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

const RESERVED_NAMES = ['_id', 'state', 'phase', 'lockedAt', 'lockedBy', 'fence', 'createdAt', 'updatedAt']

const duration = (least: string, most: string) => {
  const notText = (issue: { readonly input?: unknown }) =>
    `expected a duration from ${least} to ${most}, such as '30s', got ${JSON.stringify(issue.input)}; write it with its unit, in quotes`
  return z.string({ error: notText }).transform((value, context) => {
    try {
      const ms = durationMs(value)
      if (ms >= durationMs(least) && ms <= durationMs(most)) return ms
      context.addIssue(`expected a duration from ${least} to ${most}, got '${value}'`)
    } catch (error) {
      context.addIssue((error as Error).message)
    }
    return z.NEVER
  })
}

const whole = (least: number, most: number) =>
  z
    .number({
      error: (issue) => `expected a whole number from ${least} to ${most}, got ${JSON.stringify(issue.input)}`,
    })
    .int(`expected a whole number from ${least} to ${most}`)
    .min(least, `expected a whole number from ${least} to ${most}`)
    .max(most, `expected a whole number from ${least} to ${most}`)

const fieldName = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'expected a field name of letters, digits and _')
  .refine((name) => !RESERVED_NAMES.includes(name), 'expected a name other than those that Phaselock uses already')

const backOff = z.strictObject({
  share: z
    .number('expected a share from 0.01 to 1')
    .min(0.01, 'expected a share from 0.01 to 1')
    .max(1, 'expected a share from 0.01 to 1')
    .default(DEFAULT_BACK_OFF.share),
  patience: duration('1s', '24h').default(DEFAULT_BACK_OFF.patienceMs),
  firstError: duration('100ms', '24h').default(DEFAULT_BACK_OFF.firstErrorMs),
  longestError: duration('100ms', '24h').default(DEFAULT_BACK_OFF.longestErrorMs),
})

/** Settings that a lifecycle may declare, beside its graph. Unknown ones are refused by the definition's own check. */
export const settingsSchema = z.strictObject({
  lockTimeout: duration('1s', '24h').default(30_000),
  stepTimeout: duration('100ms', '24h').default(300_000),
  maxAttempts: whole(1, 1_000).default(20),
  maxClaims: whole(1, 1_000).default(10),
  concurrency: whole(1, 10_000).default(32),
  backOff: backOff
    .refine((rule) => rule.firstError <= rule.longestError, 'expected firstError to be no longer than longestError')
    .prefault({}),
  legacyWriters: z.boolean('expected true or false').default(false),
  reads: z
    .array(
      z.string().regex(/^[^.$][^.]*$/, "expected the name of a top-level field, such as 'image'"),
      'expected a list of field names',
    )
    .optional(),
  fields: z.strictObject({ progress: fieldName.default('progress') }).default({ progress: 'progress' }),
})

/** @returns the settings, or the problems found: each with the setting's name, what was expected and what came */
export function parseSettings(given: object): { settings: LifecycleSettings } | { problems: string[] } {
  const parsed = settingsSchema.safeParse(given)
  if (!parsed.success) {
    return { problems: parsed.error.issues.map((issue) => describe(issue)) }
  }
  const { lockTimeout, stepTimeout, fields, backOff, ...rest } = parsed.data
  return {
    settings: {
      ...rest,
      lockTimeoutMs: lockTimeout,
      stepTimeoutMs: stepTimeout,
      progress: fields.progress,
      backOff: {
        share: backOff.share,
        patienceMs: backOff.patience,
        firstErrorMs: backOff.firstError,
        longestErrorMs: backOff.longestError,
      },
    },
  }
}

function describe(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys') {
    const unknown = `unknown setting ${issue.keys.map((key) => `'${[...issue.path, key].join('.')}'`).join(', ')}`
    if (issue.path.length > 0) return unknown
    const known = ['name', 'collection', 'phases', 'rules', 'renamed', ...Object.keys(settingsSchema.shape)]
    const [near] = issue.keys.map((key) => meant(key, known)).filter(Boolean)
    return `${unknown}${near ?? ''}; known: ${known.join(', ')}`
  }
  return `${issue.path.join('.')}: ${issue.message}`
}
