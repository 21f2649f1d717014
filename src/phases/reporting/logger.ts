import { toStandardError } from '../../options/index.js'

/** The destination of Phaselock's log lines: Nest's logger, the command line's, or the user's own (pino, say). */
export interface Logger {
  /** Details for debugging. */
  debug(message: string, fields?: object): void
  /** Occasional events, as expected. */
  info(message: string, fields?: object): void
  /** Problems that resolve by themselves, but shouldn't occur. */
  warn(message: string, fields?: object): void
  /** Problems that need a person. */
  error(message: string, fields?: object): void
}

/** A logger that handles the lines of all levels alike. */
export function loggerOf(write: (level: keyof Logger, message: string, fields?: object) => void): Logger {
  const at = (level: keyof Logger) => (message: string, fields?: object) => write(level, message, fields)
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
}

/** Drops every line. */
export const silentLogger: Logger = loggerOf(() => {})

/** The logger where there is no other: warnings and errors on standard error, so that nothing fails silently. */
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
