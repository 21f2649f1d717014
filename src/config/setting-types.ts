import { availableParallelism } from 'node:os'
import { z } from 'zod'
import { durationMs, formatMs } from '../time/index.js'

/** What a person reads about a setting. Each has a variable, a flag, or both. */
export interface SettingInfo {
  readonly variable: string
  readonly flag: string
  /** What the flag's value is called in `--help`. */
  readonly value: string
  readonly meaning: string
  /** The unit or form of the value. */
  readonly unit: string
  /** What holds when it isn't given, for people. */
  readonly fallback: string
  /** Values with a meaning of their own. */
  readonly special: string
  /** Never printed as it is: may hold a password. */
  readonly secret?: true
}

export const settingInfo = z.registry<SettingInfo>()

export const text = (expected: string, pattern = /\S/) =>
  z
    .string()
    .trim()
    .regex(pattern, { error: (issue) => `expected ${expected}, got '${issue.input}'` })

export const oneOf = <const T extends readonly [string, ...string[]]>(values: T) =>
  z.enum(values, { error: (issue) => `expected one of ${values.join(', ')}, got '${issue.input}'` })

/** A duration with its unit; milliseconds within. */
export const duration = (least: string, most: string) =>
  z.string().transform((given, context) => {
    const expected = `expected a duration from ${least} to ${most}, such as '500ms', '30s' or '5m', got '${given}'`
    try {
      const ms = durationMs(given)
      if (ms >= durationMs(least) && ms <= durationMs(most)) return ms
    } catch {
      const bare = /^\d+(\.\d+)?$/.test(given.trim())
      context.addIssue(
        bare ? `${expected}; add the unit ('${given.trim()}s' is ${formatMs(+given * 1_000)})` : expected,
      )
      return z.NEVER
    }
    context.addIssue(expected)
    return z.NEVER
  })

export const wholeNumber = (least: number, most: number) =>
  z.string().transform((given, context) => {
    const n = /^\d+$/.test(given.trim()) ? Number(given) : Number.NaN
    if (n >= least && n <= most) return n
    context.addIssue(`expected a whole number from ${least} to ${most}, got '${given}'`)
    return z.NEVER
  })

/** A number of processes; `auto`: one for each core that this process may use. */
export const workers = z
  .string()
  .transform((given, context) => {
    if (given.trim() === 'auto') return availableParallelism()
    const n = /^\d+$/.test(given.trim()) ? Number(given) : Number.NaN
    if (n >= 1 && n <= 256) return n
    context.addIssue(`expected a whole number from 1 to 256, or auto, got '${given}'`)
    return z.NEVER
  })
  .default(1)
