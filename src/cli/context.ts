import type { Readable } from 'node:stream'
import { readSettings, type Settings } from '../config/index.js'
import type { Logger } from '../phases/index.js'
import { pinoLogger } from '../telemetry/index.js'
import type { Output } from './output.js'
import { settingFlags } from './setting-options.js'
import { openWorkspace, type Workspace } from './workspace.js'

/** What a command has of the world around it. */
export interface CliContext {
  readonly env: NodeJS.ProcessEnv
  readonly cwd: string
  readonly output: Output
  readonly stdin: Readable
}

/** The options of a command, as commander gives them. */
export type Options = Readonly<Record<string, unknown>>

/** The settings of a command and where its log lines go. */
export async function settle(
  context: CliContext,
  options: Options,
  defaultLevel: 'info' | 'warn',
): Promise<{ settings: Settings; logger: Logger }> {
  const settings = readSettings(context.env, settingFlags(options))
  const format = settings.log ?? (process.stderr.isTTY ? 'pretty' : 'json')
  return { settings, logger: await pinoLogger({ format, level: settings.logLevel ?? defaultLevel }) }
}

/** What a command does with a database: for one that only reads no local database is started. */
export type Access = 'reads' | 'writes'

/** Runs one command in a workspace that is closed at its end, however it ends. */
export async function inWorkspace<T>(
  context: CliContext,
  options: Options,
  use: (workspace: Workspace, settings: Settings) => Promise<T>,
  access: Access = 'writes',
): Promise<T> {
  const { settings, logger } = await settle(context, options, 'warn')
  const workspace = await openWorkspace({ ...context, settings, logger, onlyJoin: access === 'reads' })
  try {
    return await use(workspace, settings)
  } finally {
    await workspace.close()
  }
}
