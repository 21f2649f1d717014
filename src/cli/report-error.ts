import { NotFound, OperationError, Refused, UsageError } from '../operations/index.js'
import { CliError, EXIT, type ExitCode } from './errors.js'
import type { Output } from './output.js'

/** Usage errors whose message is enough for the reader, by name: a user's module may bring its own copy of Phaselock. */
const USAGE = new Set([
  'InvalidDocument',
  'InvalidLockConfig',
  'InvalidLockProvider',
  'InvalidOptions',
  'InvalidSchedule',
  'InvalidMongoUri',
  'InvalidSettings',
  'PodUnknown',
  'UnknownTimeZone',
])
/** The other errors whose message is enough. */
const FAILURES = new Set([
  'BadQueryPlan',
  'EngineStartFailed',
  'MissingIndexes',
  'OverlappingLifecycles',
  'DatabaseUnreachable',
  'DataDirUnusable',
  'InvalidDuration',
  'InvalidHandlers',
  'InvalidHostName',
  'InvalidLifecycle',
  'InvalidSchedulerLocks',
  'LockProviderUnavailable',
  'InvalidModuleOptions',
  'InvalidSchedulesOptions',
  'InvalidTask',
  'InvalidThread',
  'KeeperStuck',
  'MissingPackage',
  'MissingRights',
  'NoDatabase',
  'NoScheduler',
  'NotEnoughSpace',
  'ServerOutOfSpace',
  'NotMongoDB',
  'ServerTooOld',
  'ShardedCollections',
])

/**
 * Prints an error and returns the exit code: known errors as their message, unknown ones with their stack.
 * @param json as one JSON object (--json)
 * @param stack with the stack, also for known errors (--log-level debug)
 */
export function reportError(error: unknown, output: Output, json: boolean, stack: boolean): ExitCode {
  const code = exitCodeOf(error)
  const { name, message } = error instanceof Error ? error : { name: 'Error', message: String(error) }
  if (json) output.problem(JSON.stringify({ error: { name, message, exitCode: code } }))
  else output.problem(`phaselock: ${isKnown(error) && !stack ? message : withStack(error)}`)
  return code
}

export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof CliError) return error.exitCode
  if (error instanceof NotFound) return EXIT.notFound
  if (error instanceof Refused) return EXIT.refused
  const isUsage = error instanceof UsageError || (error instanceof Error && USAGE.has(error.name))
  return isUsage ? EXIT.usage : EXIT.failure
}

/** True if the message alone is enough for the reader. */
export function isKnown(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if (error instanceof CliError || error instanceof OperationError) return true
  // The driver's errors name the server's answer; a stack inside the driver is of no use.
  return USAGE.has(error.name) || FAILURES.has(error.name) || error.name.startsWith('Mongo')
}

function withStack(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const cause = error.cause instanceof Error ? `\ncaused by: ${withStack(error.cause)}` : ''
  return `${error.stack ?? error.message}${cause}`
}
