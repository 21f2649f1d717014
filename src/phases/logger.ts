/** Where Phaselock's log lines go: pino, Nest's logger, or the user's own. */
export interface Logger {
  debug(message: string, fields?: object): void
  info(message: string, fields?: object): void
  warn(message: string, fields?: object): void
  error(message: string, fields?: object): void
}

const nothing = () => {}
export const silentLogger: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing }

/** A logger that adds fields to each line. */
export function withFields(logger: Logger, fields: object): Logger {
  return {
    debug: (message, more) => logger.debug(message, { ...fields, ...more }),
    info: (message, more) => logger.info(message, { ...fields, ...more }),
    warn: (message, more) => logger.warn(message, { ...fields, ...more }),
    error: (message, more) => logger.error(message, { ...fields, ...more }),
  }
}
