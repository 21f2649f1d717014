import {
  inMs,
  optionsOfReplica,
  requirePackages,
  SETTINGS,
  type Settings,
  settingsIn,
  withoutEffect,
} from '../config/index.js'
import type { Alongside, Logger } from '../phases/index.js'
import { type ModuleSettings, type PhaselockModuleOptions, parseOptions } from './options.js'

/**
 * The module's options, completed by the settings of the environment that `phaselock start` reads too (docs/settings.md). An option in code
 * wins; settings without effect are logged.
 * @throws InvalidModuleOptions; InvalidSettings; MissingPackage and PodUnknown for early recovery
 */
export async function moduleSettings(
  given: PhaselockModuleOptions | undefined,
  logger: Logger,
): Promise<ModuleSettings> {
  const code = parseOptions(given)
  const env = code.env ?? process.env
  const overrides = overridesOf(code)
  const settings = settingsIn(
    env,
    overrides.map(({ key }) => key),
  )
  report(settings, withoutEffect(env, overrides), logger)
  return { ...(await optionsFrom(settings, code)), ...withoutUnset(code) }
}

/** The options that are given in code and count instead of a setting. */
const overridesOf = (code: ModuleSettings) =>
  SETTINGS.flatMap(({ key, options = [] }) => {
    const option = options.find((path) => valueAt(code, path) !== undefined)
    return option === undefined ? [] : [{ key, option, value: valueAt(code, option) }]
  })

async function optionsFrom(settings: Partial<Settings>, code: ModuleSettings): Promise<Partial<ModuleSettings>> {
  const { uri, database, dataDir, connectTimeout, earlyRecovery } = settings
  const isConnected = (code.db ?? code.client ?? code.connection) !== undefined
  return {
    ...optionsOfReplica(settings),
    ...(!isConnected && { uri, database, dataDir, connectTimeout: inMs(connectTimeout) }),
    ...(earlyRecovery === 'on' && !code.alongside && { alongside: [await recovery()] }),
  }
}

async function recovery(): Promise<Alongside> {
  requirePackages('PHASELOCK_EARLY_RECOVERY=on', ['@kubernetes/client-node'])
  return (await import('../kubernetes/index.js')).earlyRecovery()
}

/** An empty connection string counts as not given. */
const withoutUnset = (code: ModuleSettings): ModuleSettings =>
  Object.fromEntries(Object.entries(code).filter(([, value]) => value !== undefined && value !== '')) as never

/** Logs only the names: a value may be a secret. */
function report(settings: Partial<Settings>, won: readonly string[], logger: Logger): void {
  const given = SETTINGS.filter(({ key }) => settings[key] !== undefined)
  const others = given.filter(({ options }) => options === undefined).map(({ variable }) => variable)
  if (won.length > 0)
    logger.info(
      `these settings of the environment have no effect, because PhaselockModule's option wins: ${won.join(', ')}`,
    )
  if (others.length > 0)
    logger.info(
      `these settings of the environment have no effect in a Nest app, only on the command line: ${others.join(', ')}`,
    )
}

/** @param path such as `locks.url` */
const valueAt = (code: ModuleSettings, path: string): unknown =>
  path.split('.').reduce<unknown>((value, name) => (value as Record<string, unknown> | undefined)?.[name], code) ||
  undefined
