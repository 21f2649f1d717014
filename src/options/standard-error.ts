import { inspect } from 'node:util'

/** A line for people on standard error, from what was given no logger of its own: `phaselock warn: a step failed { id: 'ann' }`. */
export function toStandardError(level: string, message: string, fields?: object): void {
  const more = fields === undefined ? '' : ` ${inspect(fields, { breakLength: Number.POSITIVE_INFINITY, depth: 4 })}`
  process.stderr.write(`phaselock ${level}: ${message}${more}\n`)
}
