export type { CliContext } from './context.js'
export { CliError, EXIT, NotFound, Refused, UsageError } from './errors.js'
export { Output } from './output.js'
export { runCli } from './run.js'
