import type { Readable } from 'node:stream'
import { readSettings, type Settings } from '../config/index.js'
import type { System } from '../operations/index.js'
import type { Logger } from '../phases/index.js'
import { lineLogger } from './line-logger.js'
import type { Output } from './output.js'
import { settingFlags } from './setting-options.js'
import { openWorkspace } from './workspace.js'

/** What a command gets from its environment. */
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
  readonly by?: string
  readonly lifecycle?: string
  readonly lifecycles?: string
  readonly kubeconfig?: string
}

/** The settings of a command and where its log lines go. */
export async function settle(
  context: CliContext,
  options: Options,
  defaultLevel: 'info' | 'warn',
): Promise<{ settings: Settings; logger: Logger }> {
  const settings = readSettings(context.env, settingFlags(options))
  const format = settings.log ?? (process.stderr.isTTY ? 'pretty' : 'json')
  return { settings, logger: lineLogger({ format, level: settings.logLevel ?? defaultLevel }) }
}

const withSystem =
  (onlyJoin: boolean) =>
  async <T>(context: CliContext, options: Options, ask: (system: System) => Promise<T>): Promise<T> => {
    const { settings, logger } = await settle(context, options, 'warn')
    const { connection, lifecycles } = await openWorkspace({ ...context, settings, logger, onlyJoin })
    const { schedulesCollection: schedules, runsCollection: runs, doorbell } = settings
    const models = lifecycles.map(({ model }) => model)
    try {
      return await ask({ db: connection.db, models, doorbell, collections: { schedules, runs } })
    } finally {
      await connection.close()
    }
  }

/** Runs `ask` against the system that the command's settings name; the connection is closed at the end, whatever happens. */
export const onSystem = withSystem(false)

/** The same for a command that only reads: no local database is started for it. */
export const lookAtSystem = withSystem(true)
