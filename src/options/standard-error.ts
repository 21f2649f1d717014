import { inspect } from 'node:util'

/** Writes a line for users to standard error, if the caller was given no logger: `phaselock warn: a step failed { id: 'ann' }`. */
export function toStandardError(level: string, message: string, fields?: object): void {
  const more = fields === undefined ? '' : ` ${inspect(fields, { breakLength: Number.POSITIVE_INFINITY, depth: 4 })}`
  process.stderr.write(`phaselock ${level}: ${message}${more}\n`)
}
