import { editDistance } from '../../options/index.js'
import { SCHEDULE_FIELDS } from './schedule-fields.js'

/** The names that other schedulers use for a field. */
const OTHER_NAMES: Readonly<Record<string, (typeof SCHEDULE_FIELDS)[number]>> = {
  active: 'isActive',
  enabled: 'isActive',
  startdate: 'startAt',
  enddate: 'endAt',
  tz: 'timezone',
  concurrency: 'maxInstances',
}
const LEAST_FOR_A_SLIP = 5
const MOST_TOLD = 10
const MOST_SHOWN = 80

/**
 * Reports fields that aren't a schedule's, so its owner's own, but look like one that is missing: spelled in another style (`is_active`),
 * with one letter wrong, or named as another scheduler names it.
 */
export function nearMisses(doc: object): string[] {
  return Object.keys(doc)
    .map((key) => ({ key, meant: meantBy(key) }))
    .filter(({ meant }) => meant !== undefined && (doc as Record<string, unknown>)[meant] == null)
    .slice(0, MOST_TOLD)
    .map(({ key, meant }) => `${key}: not a field of a schedule, so it has no effect; did you mean ${meant}?`)
}

function meantBy(key: string): string | undefined {
  if ((SCHEDULE_FIELDS as readonly string[]).includes(key) || key.length > MOST_SHOWN) return undefined
  const plain = key.replaceAll(/[^a-z]/gi, '').toLowerCase()
  return Object.hasOwn(OTHER_NAMES, plain)
    ? OTHER_NAMES[plain]
    : SCHEDULE_FIELDS.find((field) => isLike(plain, field.toLowerCase()))
}

/** True if both are equal except for one letter that is wrong, missing, extra, or swapped with the next. */
const isLike = (a: string, b: string): boolean =>
  a === b || (b.length >= LEAST_FOR_A_SLIP && Math.abs(a.length - b.length) <= 1 && editDistance(a, b) <= 1)
