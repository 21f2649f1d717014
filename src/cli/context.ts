import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import type { Readable } from 'node:stream'
import { readSettings, type Settings } from '../config/index.js'
import { type DatabaseConnection, redactUri } from '../database/index.js'
import { registeredLifecycles, type System } from '../operations/index.js'
import type { Logger, RegisteredModel } from '../phases/index.js'
import { auditOf } from './by.js'
import { type Described, describedLifecycles } from './lifecycles-file.js'
import { lineLogger } from './line-logger.js'
import type { Output } from './output.js'
import { settingFlags } from './setting-options.js'
import { openWith } from './workspace.js'

/** The environment of a command. */
export interface CliContext {
  readonly env: NodeJS.ProcessEnv
  readonly cwd: string
  readonly output: Output
  readonly stdin: Readable
}

/** A command's options, as commander parses them; options that several commands share are typed here. */
export interface Options {
  readonly [option: string]: unknown
  readonly json?: true
  readonly force?: true
  readonly yes?: true
  readonly watch?: true
  readonly by?: string
  readonly lifecycle?: string
  readonly lifecycles?: string
  readonly kubeconfig?: string
}

/** Reads the settings of a command, and creates its logger. */
export async function settle(
  context: CliContext,
  options: Options,
  defaultLevel: 'info' | 'warn',
): Promise<{ settings: Settings; logger: Logger }> {
  const settings = readSettings(context.env, settingFlags(options))
  const format = settings.log ?? (process.stderr.isTTY ? 'pretty' : 'json')
  return { settings, logger: lineLogger({ format, level: settings.logLevel ?? defaultLevel }) }
}

/** The requirements of a command on its database. */
interface Needs {
  /** True if it only reads: no local database is started for it. */
  readonly reads?: true
  /** True if it works without any lifecycle. */
  readonly noLifecycles?: true
}

/**
 * Runs `ask` against the system that the command's settings name; the connection is always closed at the end. The lifecycles are
 * those that replicas have registered in the database, or those of `--lifecycles`.
 * @throws NotFound if there are no lifecycles, and they are needed
 */
const withSystem =
  ({ reads, noLifecycles }: Needs) =>
  async <T>(context: CliContext, options: Options, ask: (system: System) => Promise<T>): Promise<T> => {
    const { settings, logger } = await settle(context, options, 'warn')
    const own = settings.lifecycles
    const factory =
      own !== undefined
        ? await describedLifecycles(own, context.cwd)
        : ({ db, uri }: DatabaseConnection) => registeredLifecycles(db, redactUri(uri), { needed: !noLifecycles })
    // A database that doesn't exist yet has no lifecycles: it must not be created only to find that out.
    const isNew = own === undefined && !noLifecycles && !existsSync(resolve(context.cwd, settings.dataDir))
    const opening = { ...context, settings, logger, onlyJoin: reads || isNew }
    const { connection, lifecycles } = await openWith<Described & Partial<RegisteredModel>>(opening, factory)
    for (const { model, onlyNamed = [] } of lifecycles)
      if (onlyNamed.length > 0) logger.warn(onlyNames(model.name, onlyNamed))
    const { schedulesCollection: schedules, runsCollection: runs, doorbell } = settings
    const models = lifecycles.map(({ model }) => model)
    try {
      const audit = reads ? undefined : await auditOf(options, settings, connection, logger)
      return await ask({ db: connection.db, models, doorbell, collections: { schedules, runs }, audit })
    } finally {
      await connection.close()
    }
  }

const onlyNames = (lifecycle: string, phases: readonly string[]): string =>
  `${lifecycle}: of ${phases.join(', ')} only the name is known, as an older version of Phaselock registered it: documents that rest there are shown as due; a replica of this version tells more when it starts, and so does --lifecycles`

/** Runs a command that works on documents. */
export const onSystem = withSystem({})
/** Runs a command that only reads documents. */
export const lookAtSystem = withSystem({ reads: true })
/** Runs a command that works on other parts of the database. */
export const onDatabase = withSystem({ noLifecycles: true })
/** Runs a command that only reads other parts of the database. */
export const lookAtDatabase = withSystem({ reads: true, noLifecycles: true })
