/** Where Phaselock's log lines go: pino, Nest's logger, or the user's own. */
export interface Logger {
  debug(message: string, fields?: object): void
  info(message: string, fields?: object): void
  warn(message: string, fields?: object): void
  error(message: string, fields?: object): void
}

const nothing = () => {}
export const silentLogger: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing }

/**
 * A logger that never throws: one that does (pino's, when the thread behind it has ended) must cost only its lines.
 */
export function sturdy(logger: Logger): Logger {
  const attempt = (line: () => void) => {
    try {
      line()
    } catch {
      // There is nowhere to report it.
    }
  }
  return {
    debug: (message, fields) => attempt(() => logger.debug(message, fields)),
    info: (message, fields) => attempt(() => logger.info(message, fields)),
    warn: (message, fields) => attempt(() => logger.warn(message, fields)),
    error: (message, fields) => attempt(() => logger.error(message, fields)),
  }
}

/** A logger that adds fields to each line. */
export function withFields(logger: Logger, fields: object): Logger {
  return {
    debug: (message, more) => logger.debug(message, { ...fields, ...more }),
    info: (message, more) => logger.info(message, { ...fields, ...more }),
    warn: (message, more) => logger.warn(message, { ...fields, ...more }),
    error: (message, more) => logger.error(message, { ...fields, ...more }),
  }
}
