import type { Db } from 'mongodb'
import { UsageError } from 'phaselock/operations'
import type { PackageCall } from 'phaselock/tasks'
import { anEnvironment, environmentIn } from '../options.js'

/** The option of commands about one environment. */
export const ENVIRONMENT_OPTION = {
  '--environment <name>': 'the environment (PHASELOCK_ENVIRONMENT; default: default)',
}

/** The database and the environment of a command. @throws UsageError */
export function placeOf({ db, env, options }: PackageCall): { readonly db: Db; readonly environment: string } {
  const environment = (options['environment'] as string | undefined) ?? environmentIn(env)
  try {
    anEnvironment(environment, '--environment')
  } catch (error) {
    throw new UsageError((error as Error).message)
  }
  return { db, environment }
}
