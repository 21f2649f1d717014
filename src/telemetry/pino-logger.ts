import pino from 'pino'
import type { Logger } from '../phases/index.js'

export type LogFormat = 'json' | 'pretty'
export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent'

export interface PinoLoggerOptions {
  /** `json`: one object a line, for machines; `pretty`: for people. Default json. */
  readonly format?: LogFormat | undefined
  /** The least level that is written. Default info. */
  readonly level?: LogLevel | undefined
  /** Where the lines go. Default: standard error, so that standard output is a command's own. */
  readonly destination?: { write(line: string): unknown } | undefined
}

/** Writes our log lines with pino. Errors in fields keep name, message, stack and cause; ids are written as they are typed. */
export async function pinoLogger(options: PinoLoggerOptions = {}): Promise<Logger> {
  const { format = 'json', level = 'info' } = options
  const target = options.destination ?? pino.destination({ dest: 2, sync: true })
  const stream = format === 'pretty' ? await prettyStream(target) : target
  const logger = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: errorField },
    },
    stream as pino.DestinationStream,
  )
  return {
    debug: (message, fields) => logger.debug(fields ?? {}, message),
    info: (message, fields) => logger.info(fields ?? {}, message),
    warn: (message, fields) => logger.warn(fields ?? {}, message),
    error: (message, fields) => logger.error(fields ?? {}, message),
  }
}

/** The most characters of an error's message and of its stack, causes included, that a line takes: writing it holds up the event loop. */
const MOST_CHARACTERS = { message: 4_000, stack: 20_000 } as const

/** An error as pino writes it, cut; without its causes where they are too many for pino. */
function errorField(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const { message, stack, ...others } = fieldsOf(error)
  return {
    ...others,
    message: message?.slice(0, MOST_CHARACTERS.message),
    stack: stack?.slice(0, MOST_CHARACTERS.stack),
  }
}

function fieldsOf(error: Error): { message?: string; stack?: string } {
  try {
    return pino.stdSerializers.err(error)
  } catch {
    const { name, message, stack } = error
    return { type: name, message, stack } as { message: string }
  }
}

/** pino-pretty is loaded only where it is used; in the same thread, so that no line is lost at the end. */
async function prettyStream(target: { write(line: string): unknown }): Promise<unknown> {
  const { prettyFactory } = await import('pino-pretty')
  const pretty = prettyFactory({
    colorize: isTerminal(target),
    translateTime: 'SYS:HH:MM:ss.l',
    ignore: 'pid,hostname',
    errorLikeObjectKeys: ['error', 'err'],
    singleLine: true,
  })
  return { write: (line: string) => target.write(pretty(line)) }
}

/** Colours only where a person looks: our own standard error on a terminal. */
const isTerminal = (target: unknown): boolean =>
  (target as { fd?: unknown }).fd === 2 && process.stderr.isTTY === true && !process.env['NO_COLOR']
