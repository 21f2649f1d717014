import { unknownOptions } from '../options/index.js'
import { MOST_REENTRY, reentrySuffix } from './acquisition.js'
import { type LockDuration, lockDurationMs } from './durations.js'
import { InvalidLockConfig } from './errors.js'

/** A request to a lock provider. */
export interface LockConfig {
  /** The lock's name: 1 to 255 characters (with PostgreSQL, the width of its column: 64 in ShedLock's table). */
  readonly name: string
  /** The lock of a dead holder ends after this time. Choose much more than the work takes, or use a watchdog. At most 365 days. */
  readonly lockAtMostFor: LockDuration
  /** Even a fast holder keeps the lock for this long after locking it, which prevents a second run by a lagging clock. Default '0s'. */
  readonly lockAtLeastFor?: LockDuration | undefined
  /**
   * Identifies the work, if that outlives a process: at most 140 characters, where %, | and ~ count as three. A lock held under the same
   * `reentry` is granted immediately, with a new holder and a higher fence; the previous holder has lost it. Default: none; then a lock that
   * is held is never granted.
   */
  readonly reentry?: string | undefined
}

/** A checked configuration: durations in milliseconds, defaults filled in. */
export interface CheckedLockConfig {
  /** The lock's name, as it was given. */
  readonly name: string
  /** More than 0, at most 365 days. */
  readonly lockAtMostForMs: number
  /** From 0 to `lockAtMostForMs`; 0 if it wasn't given. */
  readonly lockAtLeastForMs: number
  /** As it was given; undefined: a held lock is never granted. */
  readonly reentry: string | undefined
}

const MOST_MS = 365 * 86_400_000
const KEYS = ['name', 'lockAtMostFor', 'lockAtLeastFor', 'reentry']

/**
 * @param extra keys that the caller knows besides those of {@link LockConfig}
 * @throws InvalidLockConfig with every problem
 */
export function checkedLockConfig(given: LockConfig, extra: readonly string[] = []): CheckedLockConfig {
  if (typeof given !== 'object' || given === null)
    throw new InvalidLockConfig('(without a name)', [
      `expected { name, lockAtMostFor, lockAtLeastFor? }, got ${String(given)}`,
    ])
  const problems = [
    ...unknownOptions(Object.keys(given), [...KEYS, ...extra]),
    ...nameProblems(given.name),
    ...reentryProblems(given.reentry),
  ]
  const atMost = msOf('lockAtMostFor', given.lockAtMostFor, problems)
  const atLeast = given.lockAtLeastFor === undefined ? 0 : msOf('lockAtLeastFor', given.lockAtLeastFor, problems)
  problems.push(...durationProblems(atMost, atLeast))
  const lock = typeof given.name === 'string' && given.name ? `'${given.name}'` : '(without a name)'
  if (problems.length > 0) throw new InvalidLockConfig(lock, problems)
  return { name: given.name, lockAtMostForMs: atMost!, lockAtLeastForMs: atLeast!, reentry: given.reentry }
}

function nameProblems(name: unknown): string[] {
  const got = name === '' ? 'an empty one' : String(name)
  if (typeof name !== 'string' || name === '')
    return [`name: expected a string, got ${got}; locks with the same name exclude each other`]
  // biome-ignore lint/suspicious/noControlCharactersInRegex: no store takes them alike
  if (name.length > 255 || /^\s|\s$|[\u0000-\u001f]/.test(name))
    return ['name: expected 1 to 255 characters without control characters, leading or trailing spaces']
  return []
}

function reentryProblems(reentry: unknown): string[] {
  if (reentry === undefined) return []
  const fits = typeof reentry === 'string' && reentry !== '' && reentrySuffix(reentry).length - 1 <= MOST_REENTRY
  return fits ? [] : [`reentry: expected a string of 1 to ${MOST_REENTRY} characters, where %, | and ~ count as three`]
}

/** A duration in milliseconds. If it can't be read: undefined, and one more problem. */
export function msOf(key: string, value: unknown, problems: string[]): number | undefined {
  try {
    return lockDurationMs(value)
  } catch (error) {
    problems.push(`${key}: ${(error as Error).message}`)
    return undefined
  }
}

function durationProblems(atMost: number | undefined, atLeast: number | undefined): string[] {
  const problems: string[] = []
  if (atMost !== undefined && (atMost <= 0 || atMost > MOST_MS))
    problems.push(`lockAtMostFor: expected more than 0 and at most 365 days, got ${atMost} ms`)
  if (atLeast !== undefined && atLeast < 0) problems.push(`lockAtLeastFor: expected 0 or more, got ${atLeast} ms`)
  if (atMost !== undefined && atLeast !== undefined && atMost > 0 && atLeast > atMost)
    problems.push(
      `lockAtLeastFor (${atLeast} ms): expected at most lockAtMostFor (${atMost} ms); a lock can't be kept longer than it lasts`,
    )
  return problems
}
