import { z } from 'zod'
import { checkFields, containerShape, expecting } from '../pods/index.js'
import type { JobFields } from './documents.js'

export const DEFAULT_LOG_LINES = 50

/** Kubernetes keeps such numbers in 32 bits. */
const MOST = 2 ** 31 - 1

function whole(least: number, most: number, unit: string) {
  const what = expecting(`a whole number${unit} from ${least} to ${most}`)
  return z.int(what).min(least, what).max(most, what)
}

const shape = z.object({
  ...containerShape,
  activeDeadlineSeconds: whole(1, MOST, ' of seconds').optional(),
  backoffLimit: whole(0, 1_000, '').default(0),
  ttlSecondsAfterFinished: whole(1, MOST, ' of seconds').optional(),
  logLines: whole(0, 1_000, '').default(DEFAULT_LOG_LINES),
})

/** What a job is to run, checked, with its defaults. */
export type JobSpec = z.infer<typeof shape>

/** Checks the owner's fields before anything is made from them. @returns the spec, or what is wrong with it in one string */
export function checkJob(fields: Readonly<JobFields>): { readonly spec: JobSpec } | { readonly problem: string } {
  return checkFields(shape, fields)
}
