/**
 * The commands that this package adds to the command line of phaselock.
 *
 * @packageDocumentation
 */
import type { PackageCheck, PackageCommands } from 'phaselock/tasks'
import { checkRepositories } from './check.js'
import { repositoriesCommands } from './commands.js'

/** By the name of the command: `phaselock repositories`. */
export const commands: PackageCommands = { repositories: repositoriesCommands }

/** The findings of `phaselock check`: repositories that aren't in sync. */
export const check: PackageCheck = checkRepositories
