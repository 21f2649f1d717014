import * as v from 'valibot'
import { someFieldsOf, wholeNumber } from '../fields.js'
import { checkFields, containerShape } from '../pods/index.js'
import type { JobFields } from './documents.js'

export const DEFAULT_LOG_LINES = 50

/** Kubernetes stores such numbers in 32 bits. */
const MOST = 2 ** 31 - 1

const whole = (least: number, most: number, unit: string) =>
  wholeNumber(least, most, `a whole number${unit} from ${least} to ${most}`)

const shape = someFieldsOf({
  ...containerShape,
  activeDeadlineSeconds: v.optional(whole(1, MOST, ' of seconds')),
  backoffLimit: v.optional(whole(0, 1_000, ''), 0),
  ttlSecondsAfterFinished: v.optional(whole(1, MOST, ' of seconds')),
  logLines: v.optional(whole(0, 1_000, ''), DEFAULT_LOG_LINES),
})

/** The checked settings of a job, with defaults. */
export type JobSpec = v.InferOutput<typeof shape>

/** Checks the owner's fields before any object is created from them. @returns the spec, or its problems in one string */
export function checkJob(fields: Readonly<JobFields>): { readonly spec: JobSpec } | { readonly problem: string } {
  return checkFields(shape, fields)
}
