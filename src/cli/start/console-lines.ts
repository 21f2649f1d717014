import { format } from 'node:util'
import type { Logger } from '../../phases/index.js'

/**
 * What libraries print to the console as a warning or an error (cron: "Missed execution deadline") goes to the log: with
 * `--log json` every line of standard error is JSON.
 */
export function consoleToLog(logger: Logger, target: Partial<Console> = globalThis.console): void {
  Object.assign(target, {
    warn: (...words: unknown[]) => logger.warn(format(...words)),
    error: (...words: unknown[]) => logger.error(format(...words)),
  })
}
