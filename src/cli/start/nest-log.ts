import type { LoggerService } from '@nestjs/common'
import type { Logger } from '../../phases/index.js'

/** Nest's own lines: the modules it has loaded go to debug, warnings and errors keep their level. */
export function nestLog(logger: Logger): LoggerService {
  const text = (message: unknown) => (message instanceof Error ? message.message : String(message))
  return {
    log: (message) => logger.debug(`nest: ${text(message)}`),
    debug: (message) => logger.debug(`nest: ${text(message)}`),
    verbose: (message) => logger.debug(`nest: ${text(message)}`),
    warn: (message) => logger.warn(`nest: ${text(message)}`),
    error: (message, stack) => logger.error(`nest: ${text(message)}`, typeof stack === 'string' ? { stack } : {}),
    fatal: (message) => logger.error(`nest: ${text(message)}`),
  }
}
