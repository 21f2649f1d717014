import { Logger as NestLogger } from '@nestjs/common'
import { withErrors } from '../options/index.js'
import type { Logger } from '../phases/index.js'

/** The part of Nest's LoggerService that is used here; an app's own logger fits too. */
export interface NestLog {
  /** Gets lines of level info. */
  log(message: string): unknown
  /** Gets lines of level warn. */
  warn(message: string): unknown
  /** Gets lines of level error, with the stack if they have an error. */
  error(message: string, stack?: string): unknown
  /** Gets lines of level debug; without it they are dropped. */
  debug?(message: string): unknown
}

/** Sends Phaselock's lines through Nest's logger: the fields follow the message as `name=value`. */
export function nestLogger(target: NestLog = new NestLogger('Phaselock')): Logger {
  return {
    debug: (message, fields) => void target.debug?.(line(message, fields)),
    info: (message, fields) => void target.log(line(message, fields)),
    warn: (message, fields) => void target.warn(line(message, fields)),
    error: (message, fields) => {
      const stack = (fields as { error?: { stack?: unknown } } | undefined)?.error?.stack
      target.error(line(message, fields), ...(typeof stack === 'string' ? [stack] : []))
    },
  }
}

function line(message: string, fields: object | undefined): string {
  const shown = Object.entries(fields ?? {})
    .filter(([name, value]) => name !== 'error' && value !== undefined && value !== null)
    .map(([name, value]) => `${name}=${text(value)}`)
  return shown.length > 0 ? `${message} (${shown.join(' ')})` : message
}

/** Prints ids as they would be typed, everything else as JSON. */
function text(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value !== 'object' || value === null) return String(value)
  if ('toHexString' in value) return String(value)
  try {
    return JSON.stringify(value, withErrors) ?? String(value)
  } catch {
    return String(value)
  }
}
