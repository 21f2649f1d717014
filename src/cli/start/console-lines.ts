import { format } from 'node:util'
import type { Logger } from '../../phases/index.js'

/**
 * Sends the warnings and errors that libraries print to the console (cron: "Missed execution deadline") to the log: with
 * `--log json` every line of standard error is JSON.
 */
export function consoleToLog(logger: Logger, target: Partial<Console> = globalThis.console): void {
  Object.assign(target, {
    warn: (...words: unknown[]) => logger.warn(format(...words)),
    error: (...words: unknown[]) => logger.error(format(...words)),
  })
}

/** Logs unhandled rejections, each of which would end the process, and with it all other work. */
export function rejectionsToLog(logger: Logger): void {
  process.on('unhandledRejection', (error) =>
    logger.error(`unhandled promise rejection: ${String(error)}; some handler doesn't await this promise`, { error }),
  )
}
