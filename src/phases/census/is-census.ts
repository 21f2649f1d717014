import type { Document } from 'mongodb'
import { isValid } from '../../lock/index.js'

type Check = (value: unknown) => boolean

const isText: Check = (value) => typeof value === 'string'
const isNumber: Check = (value) => typeof value === 'number'
const isFlag: Check = (value) => typeof value === 'boolean'
const isTime: Check = (value) => value instanceof Date && isValid(value)
const orNull =
  (check: Check): Check =>
  (value) =>
    value === null || check(value)
const isObject = (value: unknown): value is Document => typeof value === 'object' && value !== null
const isOf =
  (fields: Readonly<Record<string, Check>>): Check =>
  (value) =>
    isObject(value) && Object.entries(fields).every(([field, check]) => check(value[field]))
const isListOf =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check)
const isList: Check = (value) => Array.isArray(value)
const isCount = isOf({ n: isNumber })

const some = { documents: isCount, ids: isList }
const troubles = isListOf(
  isOf({
    ...{ cause: isText, text: isText, phases: isListOf(isText), ...some },
    ...{ oldest: isTime, newest: isTime, firstSeen: isTime },
  }),
)
export const isWholeGoneCause = isOf({ cause: isText, firstSeen: isTime, lastSeen: isTime })

/** True for a whole census. A person may have put anything there; what isn't one counts as none, so that its readers need no checks. */
export const isWholeCensus = isOf({
  ...{ _id: isText, at: isTime, tookMs: isNumber, everyMs: isNumber },
  phases: isListOf(
    isOf({
      ...{ phase: isText, kind: isText, paused: isFlag, documents: isCount, due: isCount, held: isNumber },
      ...{ sleeping: isCount, asking: isCount, parked: isCount, failing: isCount, waiting: isCount },
      ...{ oldestDueAt: orNull(isTime), undated: isNumber },
    }),
  ),
  ...{ errors: troubles, moreErrors: isNumber, parks: troubles, moreParks: isNumber },
  waits: isListOf(isOf({ on: isText, phase: isText, oldest: isTime, ...some })),
  questions: isOf({ nearestDeadline: orNull(isTime), ...some }),
  overdue: isListOf(isOf({ phase: isText, why: isText, oldest: isTime, ...some })),
  broken: isListOf(isOf({ field: isText, found: isText, ...some })),
  loops: isListOf(isOf({ phase: isText, ...some })),
  callbacks: isOf({ givenUp: isCount, ids: isList }),
})
