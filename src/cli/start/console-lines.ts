import { format } from 'node:util'
import type { Logger } from '../../phases/index.js'

/**
 * What libraries warn of on the console (cron: "Missed execution deadline") goes the way of all log lines: with
 * `--log json` every line of standard error is JSON.
 */
export function consoleToLog(logger: Logger, target: Partial<Console> = globalThis.console): void {
  Object.assign(target, {
    warn: (...words: unknown[]) => logger.warn(format(...words)),
    error: (...words: unknown[]) => logger.error(format(...words)),
  })
}
