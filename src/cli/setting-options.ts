import type { Command } from 'commander'
import { type Flags, SETTINGS, type SettingKey } from '../config/index.js'

/** Settings of every command that uses the database. */
export const DATABASE_SETTINGS: readonly SettingKey[] = [
  'uri',
  'database',
  'dataDir',
  'connectTimeout',
  'lifecycles',
  'doorbell',
  'log',
  'logLevel',
]
export const LOCK_SETTINGS: readonly SettingKey[] = ['locks', 'locksUrl', 'mode']
export const SCHEDULE_SETTINGS: readonly SettingKey[] = ['schedulesCollection', 'runsCollection']
export const START_SETTINGS: readonly SettingKey[] = [
  ...DATABASE_SETTINGS,
  'name',
  'grace',
  'workers',
  'concurrency',
  'threads',
  'threadMemory',
  'blockedAfter',
  'clockHold',
  'beatEvery',
  'appVersion',
  'sweepEvery',
  'tickEvery',
  'earlyRecovery',
  'http',
  'httpHost',
  'answerTokens',
  'transitions',
]

/** Adds a flag for each setting; the values are checked together with the environment, by `readSettings`. */
export function addSettingOptions(command: Command, keys: readonly SettingKey[]): Command {
  const plain = (text: string) => text.replaceAll('`', '')
  for (const { flag, value, meaning, variable, fallback } of SETTINGS.filter(({ key }) => keys.includes(key))) {
    const description = `${plain(meaning)} (${variable}; default: ${plain(fallback)})`
    command.option(`--${flag} <${value}>`, description)
  }
  return command
}

/** The given flags of a command's settings. */
export function settingFlags(options: Readonly<Record<string, unknown>>): Flags {
  return Object.fromEntries(SETTINGS.map(({ key }) => [key, options[key] as string | undefined]))
}
