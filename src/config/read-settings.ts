import { didYouMean, t } from '../options/index.js'
import { NO_SETTINGS, SETTINGS, type SettingKey, type Settings, settingsSchema } from './settings.js'

const PREFIX = 'PHASELOCK_'

/** Settings that can't be used. Lists every problem, each with the expected value, the given one and the remedy. */
export class InvalidSettings extends Error {
  override readonly name = 'InvalidSettings'
  constructor(readonly problems: readonly string[]) {
    super(
      `${problems.length === 1 ? 'a setting' : `${problems.length} settings`} can't be used:\n` +
        problems.map((problem) => `  - ${problem}`).join('\n'),
    )
  }
}

type Environment = Readonly<Record<string, string | undefined>>

/** Values of flags, by setting; a flag that wasn't given is absent or undefined. */
export type Flags = Readonly<Partial<Record<SettingKey, string | undefined>>>

/**
 * Reads the settings from flags and environment: a flag wins over its variable, an empty variable counts as not set.
 * @throws InvalidSettings with every problem: unknown `PHASELOCK_*` variables and values that can't be used
 */
export function readSettings(env: Environment, flags: Flags = {}): Settings {
  const problems = unknownVariables(env)
  const given: Partial<Record<SettingKey, string>> = {}
  const origins = new Map<string, string>()
  for (const { key, flag, variable } of SETTINGS) {
    const fromFlag = flags[key]
    const value = fromFlag ?? valueIn(env, variable)
    if (value !== undefined) given[key] = value
    origins.set(key, fromFlag === undefined ? variable : `--${flag}`)
  }
  const read = t.readAs(settingsSchema, given)
  if ('value' in read && problems.length === 0) return read.value
  for (const { path, message } of 'problems' in read ? read.problems : []) {
    const { key, fallback } = SETTINGS.find((one) => one.key === path[0])!
    problems.push(`${origins.get(key)}: ${message}; leave it out for the default (${fallback.replaceAll('`', '')})`)
  }
  throw new InvalidSettings(problems)
}

/**
 * Reads the settings that an environment names, checked and without the defaults of the others.
 * @param overridden settings for which an option in code counts: whatever their variables hold has no effect, so none is refused for it
 * @throws InvalidSettings as {@link readSettings}
 */
export function settingsIn(env: Environment, overridden: readonly SettingKey[] = []): Partial<Settings> {
  const named = SETTINGS.filter(({ variable }) => valueIn(env, variable) !== undefined)
  const used = named.filter(({ key }) => !overridden.includes(key))
  const unused = new Set(named.filter((one) => !used.includes(one)).map(({ variable }) => variable))
  const all = readSettings(Object.fromEntries(Object.entries(env).filter(([name]) => !unused.has(name))))
  return Object.fromEntries(used.map(({ key }) => [key, all[key]]))
}

/** An option in code that counts instead of a setting. */
interface Override {
  readonly key: SettingKey
  /** Its name, for messages. */
  readonly option: string
  readonly value: unknown
}

/** The names of the variables that have no effect because of an option in code, with that option; those that mean the same are left out. */
export function withoutEffect(env: Environment, overrides: readonly Override[]): string[] {
  return overrides.flatMap(({ key, option, value }) => {
    const { variable } = SETTINGS.find((one) => one.key === key)!
    const text = valueIn(env, variable)
    if (text === undefined) return []
    const read = t.readAs(settingsSchema, { [key]: text })
    const setting: unknown = 'value' in read ? read.value[key] : undefined
    const isSame = setting !== undefined && (value === setting || t.msOf(value) === setting)
    return isSame ? [] : [`${variable} (${option})`]
  })
}

function valueIn(env: Environment, variable: string): string | undefined {
  const value = env[variable]?.trim()
  return value && !isKubernetesVariable(variable, value) ? value : undefined
}

/** Variables that packages beside phaselock read (docs/state.md). */
const OF_PACKAGES = ['PHASELOCK_ENVIRONMENT', 'PHASELOCK_STATE_KEYS']

function unknownVariables(env: Environment): string[] {
  const known = [...SETTINGS.map((setting) => setting.variable), ...OF_PACKAGES]
  const ours = known.filter((name) => name.startsWith(PREFIX))
  return Object.entries(env)
    .filter(([name, value]) => value && name.startsWith(PREFIX) && !NO_SETTINGS.test(name))
    .filter(([name, value]) => !known.includes(name) && !isKubernetesVariable(name, value!))
    .map(([name]) => {
      const hint = didYouMean(name, known) || `; known: ${ours.join(', ')}.`
      return `${name}: expected a known setting, got an unknown one${hint} Correct it or unset it`
    })
}

/**
 * Recognizes a variable of Kubernetes, which gives each pod variables for every Service of its namespace. A Service named `phaselock` or
 * `phaselock-http` brings PHASELOCK_SERVICE_HOST, PHASELOCK_SERVICE_PORT_HTTP, PHASELOCK_PORT=tcp://10.0.0.7:8080,
 * PHASELOCK_PORT_8080_TCP_ADDR, PHASELOCK_HTTP_PORT=tcp://... These are never settings, and must not be refused as unknown ones.
 */
function isKubernetesVariable(name: string, value: string): boolean {
  if (/_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$/.test(name)) return true
  if (/_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$/.test(name)) return true
  return /_PORT$/.test(name) && /^(tcp|udp|sctp):\/\//.test(value)
}
