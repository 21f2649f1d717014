import { BSON } from 'mongodb'
import { UsageError } from 'phaselock/operations'
import { Doorbell, type PackageCall, type PackageCheck, type PackageCommand } from 'phaselock/tasks'
import {
  CONFIG_RING,
  type ConfigVersion,
  listConfigs,
  rollBackConfig,
  storeConfig,
  storedConfig,
  unknownConfig,
  versionOf,
} from '../config/versions.js'
import { ENVIRONMENT_OPTION, placeOf } from './place.js'

const A_CONFIG = { '<name>': "the configuration's name" }
const EXPECT_VERSION = { '--expect-version <n>': 'only if this version is still stored; 0: only if none is' }

/** `phaselock config`. */
export const configCommands: readonly PackageCommand[] = [
  {
    name: '',
    about: 'list the configurations, their versions, and the processes that refuse one',
    options: ENVIRONMENT_OPTION,
    examples: ['config', 'config --environment staging --json'],
    async run(call) {
      const place = placeOf(call)
      const found = await listConfigs(place)
      const refusals = found.flatMap(({ name, refused }) =>
        refused.map(({ by, version, issues }) => `${name}: ${by} refuses version ${version}: ${issues.join('; ')}`),
      )
      return {
        json: found.map(({ name, version, by, reason, at, refused }) => ({ name, version, by, reason, at, refused })),
        head: ['name', 'version', 'at', 'by', 'reason', 'refused by'],
        rows: found.map(({ name, version, at, by, reason = '-', refused }) => [
          name,
          String(version),
          at.toISOString(),
          by,
          reason,
          refused.length === 0 ? '-' : refused.map((one) => one.by).join(', '),
        ]),
        lines:
          found.length === 0
            ? [`no configuration is stored for the environment ${place.environment}; each app uses its initial values`]
            : refusals,
      }
    },
  },
  {
    name: 'get',
    about: 'print a value, with its version, author and reason',
    arguments: { ...A_CONFIG, '[version]': 'an earlier version (default: the stored one)' },
    options: ENVIRONMENT_OPTION,
    examples: ['config get mail', 'config get mail 3 --json'],
    async run(call) {
      const { place, name, stored } = await storedFor(call)
      const wanted = versionFrom(call.args[1], 'version')
      const all = [versionOf(stored), ...stored.history.map(versionOf)]
      const one = wanted === undefined ? all[0] : all.find(({ version }) => version === wanted)
      if (!one) throw unknownConfig(place, `${name} in version ${wanted}`)
      return { json: { name, ...one }, lines: [textOf(one.value), aboutOf(one)] }
    },
  },
  {
    name: 'set',
    about: 'store a value as the next version; a process whose schema refuses it keeps the one before, and says so',
    arguments: { ...A_CONFIG, '<value>': 'the whole value as JSON or Extended JSON' },
    options: { ...ENVIRONMENT_OPTION, ...EXPECT_VERSION },
    examples: [
      `config set mail '{"host": "smtp.example.org", "port": 587}' --reason "the new relay"`,
      `config set mail '{"host": "localhost"}' --expect-version 4`,
    ],
    changes: true,
    async run(call) {
      const place = placeOf(call)
      const [name = '', text = ''] = call.args
      const before = await storedConfig(place, name)
      const stored = await storeConfig(place, name, valueFrom(text), {
        ...authorOf(call),
        expectVersion: wholeNumber(call, 'expectVersion'),
      })
      await ring(call)
      return changed(
        name,
        before,
        stored,
        `${name}: version ${stored.version} is stored; see whether all accept it with: phaselock config`,
      )
    },
  },
  {
    name: 'history',
    about: 'list the versions that are kept, newest first',
    arguments: A_CONFIG,
    options: ENVIRONMENT_OPTION,
    examples: ['config history mail', 'config history mail --json'],
    async run(call) {
      const { name, stored } = await storedFor(call)
      const versions = [versionOf(stored), ...stored.history.map(versionOf)]
      return {
        json: { name, versions },
        head: ['version', 'at', 'by', 'reason', 'value'],
        rows: versions.map(({ version, at, by, reason = '-', value }) => [
          String(version),
          at.toISOString(),
          by,
          reason,
          textOf(value),
        ]),
      }
    },
  },
  {
    name: 'rollback',
    about: 'store the value of an earlier version as the next one',
    arguments: A_CONFIG,
    options: {
      ...ENVIRONMENT_OPTION,
      ...EXPECT_VERSION,
      '--to <n>': 'the version (default: the one before the stored one)',
    },
    examples: ['config rollback mail', 'config rollback mail --to 3 --reason "the relay refuses us"'],
    changes: true,
    async run(call) {
      const { place, name, stored: before } = await storedFor(call)
      const stored = await rollBackConfig(place, name, {
        ...authorOf(call),
        to: wholeNumber(call, 'to'),
        expectVersion: wholeNumber(call, 'expectVersion'),
      })
      await ring(call)
      const from = wholeNumber(call, 'to') ?? before.version - 1
      return changed(
        name,
        before,
        stored,
        `${name}: version ${stored.version} is stored, with the value of version ${from}`,
      )
    },
  },
]

/** The app's processes look now. */
async function ring({ db }: PackageCall): Promise<void> {
  const doorbell = new Doorbell({ db, mode: 'capped', create: false, self: 'phaselock config' })
  doorbell.ring(CONFIG_RING)
  await doorbell.flush()
}

async function storedFor(call: PackageCall) {
  const place = placeOf(call)
  const [name = ''] = call.args
  const stored = await storedConfig(place, name)
  if (!stored) throw unknownConfig(place, name)
  return { place, name, stored }
}

const authorOf = ({ by, reason }: PackageCall) => ({ by, reason })

function wholeNumber({ options }: PackageCall, option: string): number | undefined {
  const flag = option.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
  return versionFrom(options[option], `--${flag}`)
}

function versionFrom(text: string | true | undefined, from: string): number | undefined {
  if (text === undefined) return undefined
  if (/^\d{1,15}$/.test(String(text))) return Number(text)
  throw new UsageError(`${from}: expected a version, a whole number, got ${text}`)
}

function valueFrom(text: string): unknown {
  try {
    return (BSON.EJSON.parse(`{"value":${text}}`) as { value: unknown }).value
  } catch (error) {
    throw new UsageError(
      `expected a value as JSON, such as '{"port": 587}' or '"text"', got ${text} (${(error as Error).message}); in a shell, quote it with '...'`,
    )
  }
}

const textOf = (value: unknown): string => BSON.EJSON.stringify({ value }).slice('{"value":'.length, -1)

const aboutOf = ({ version, at, by, reason }: ConfigVersion): string =>
  `version ${version} of ${at.toISOString()} by ${by}${reason === undefined ? '' : `: ${reason}`}`

const changed = (name: string, before: ConfigVersion | undefined, after: ConfigVersion, line: string) => ({
  json: { name, ...after },
  lines: [line],
  audit: {
    before: before ? { version: before.version, value: before.value } : null,
    after: { version: after.version, value: after.value },
  },
})

/** The stored values that a running process refuses. */
export const checkConfigs: PackageCheck = async (db) => {
  const found = await listConfigs({ db })
  return found.flatMap(({ environment, name, refused }) =>
    refused.map(({ by, version, issues }) => ({
      about: `config ${environment}:${name}`,
      problem: `${by} refuses version ${version} and works with an older one: ${issues.join('; ')}`,
      advice: `roll it back (phaselock config rollback ${name} --environment ${environment}), or deploy the version of the app that accepts it everywhere`,
    })),
  )
}
