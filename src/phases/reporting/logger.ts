import { toStandardError } from '../../options/index.js'

/** Where Phaselock's log lines go: Nest's logger, the command line's, or the user's own (pino, say). */
export interface Logger {
  /** Details for whoever looks for a fault. */
  debug(message: string, fields?: object): void
  /** What happens once in a while, as expected. */
  info(message: string, fields?: object): void
  /** What goes on by itself, but shouldn't be so. */
  warn(message: string, fields?: object): void
  /** What needs a person. */
  error(message: string, fields?: object): void
}

/** A logger that handles the lines of all levels alike. */
export function loggerOf(write: (level: keyof Logger, message: string, fields?: object) => void): Logger {
  const at = (level: keyof Logger) => (message: string, fields?: object) => write(level, message, fields)
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
}

/** Drops every line. */
export const silentLogger: Logger = loggerOf(() => {})

/** Where there is no other: warnings and errors on standard error, so that nothing fails without a word. */
export const warningsLogger: Logger = loggerOf((level, message, fields) => {
  if (level === 'warn' || level === 'error') toStandardError(level, message, fields)
})

/** A logger that never throws: one that does (pino's, when the thread behind it has ended) must cost only its lines. */
export const sturdy = (logger: Logger): Logger =>
  loggerOf((level, message, fields) => {
    try {
      logger[level](message, fields)
    } catch {
      // There is nowhere to report it.
    }
  })

/** A logger that adds fields to each line. */
export const withFields = (logger: Logger, fields: object): Logger =>
  loggerOf((level, message, more) => logger[level](message, { ...fields, ...more }))
