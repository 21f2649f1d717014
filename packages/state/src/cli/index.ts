/**
 * The commands that this package adds to the command line of phaselock.
 *
 * @packageDocumentation
 */
import type { PackageCheck, PackageCommands } from 'phaselock/tasks'
import { checkConfigs, configCommands } from './config-commands.js'
import { loginsCommands } from './logins-commands.js'

/** By the name of the command: `phaselock config`, `phaselock logins`. */
export const commands: PackageCommands = { config: configCommands, logins: loginsCommands }

/** The findings of `phaselock check`: stored configurations that a running process refuses. */
export const check: PackageCheck = checkConfigs
