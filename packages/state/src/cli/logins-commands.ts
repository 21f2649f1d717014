import { readFile } from 'node:fs/promises'
import { UsageError } from 'phaselock/operations'
import type { PackageCall, PackageCommand } from 'phaselock/tasks'
import { KEYS_VARIABLE, Keyring, keyOf } from '../logins/keyring.js'
import { logIn } from '../logins/log-in.js'
import { type LoginProfile, needsUser } from '../logins/profile.js'
import {
  listProfiles,
  removeProfile,
  rotateSecrets,
  secretPlace,
  storedProfile,
  storeProfile,
} from '../logins/profiles.js'
import { ENVIRONMENT_OPTION, placeOf } from './place.js'

const A_PROFILE = { '<name>': "the profile's name" }

/** `phaselock logins`. */
export const loginsCommands: readonly PackageCommand[] = [
  {
    name: '',
    about: 'list the login profiles, and the keys that sealed their secrets',
    options: ENVIRONMENT_OPTION,
    examples: ['logins', 'logins --json'],
    async run(call) {
      const place = placeOf(call)
      const found = (await listProfiles(place)).map(({ profile, secrets, version, by, reason, at }) => ({
        name: profile.name,
        url: profile.url.split('?')[0]!,
        perUser: needsUser(profile),
        secrets: Object.keys(secrets),
        keys: [...new Set(Object.values(secrets).map(keyOf))].sort(),
        version,
        by,
        reason,
        at,
      }))
      return {
        json: found,
        head: ['name', 'url', 'per user', 'secrets', 'keys', 'version', 'at', 'by'],
        rows: found.map(({ name, url, perUser, secrets, keys, version, at, by }) => [
          name,
          url,
          perUser ? 'yes' : 'no',
          secrets.join(', ') || '-',
          keys.join(', ') || '-',
          String(version),
          at.toISOString(),
          by,
        ]),
        lines: found.length > 0 ? [] : [`no login profile is stored for the environment ${place.environment}`],
      }
    },
  },
  {
    name: 'set',
    about: 'store a login profile; its secrets come from files or environment variables, never from the command line',
    arguments: { '<file>': 'a JSON file with the profile, without its secrets' },
    options: {
      ...ENVIRONMENT_OPTION,
      '--secrets-file <file>': 'a JSON file with the secrets by name: {"password": "..."}',
      '--secrets-from-env <names>': 'secrets from environment variables: password=CRM_PASSWORD,key=CRM_KEY',
    },
    examples: [
      'logins set crm.json --secrets-from-env password=CRM_PASSWORD',
      'logins set crm.json --secrets-file /run/secrets/crm.json',
    ],
    changes: true,
    async run(call) {
      const place = placeOf(call)
      const open = await jsonFrom(call.args[0] ?? '')
      if ('secrets' in open)
        throw new UsageError(
          'expected a profile without secrets, got one with them; put them into another file (--secrets-file)',
        )
      const profile = { ...open, secrets: await secretsFrom(call) } as unknown as LoginProfile
      const version = await storeProfile(place, keyringOf(call), profile, { by: call.by, reason: call.reason })
      const { name } = profile
      return {
        json: { name, version },
        lines: [
          `${name}: version ${version} is stored; try it with: phaselock logins try ${name}${needsUser(profile) ? ' <user>' : ''}`,
        ],
        audit: { after: { name, version } },
      }
    },
  },
  {
    name: 'try',
    about: 'log in once, and say whether a token came; nothing is stored, and a former session may end',
    arguments: { ...A_PROFILE, '[user]': 'the user, where the profile has {{user}}' },
    options: ENVIRONMENT_OPTION,
    examples: ['logins try crm', 'logins try crm bo'],
    async run(call) {
      const place = placeOf(call)
      const [name = '', user] = call.args
      const { profile, secrets } = await storedProfile(place, name)
      if (needsUser(profile) && !user) throw new UsageError(`expected a user, because ${name} has {{user}}, got none`)
      const keyring = keyringOf(call)
      const opened = Object.entries(secrets).map(([one, sealed]) => [
        one,
        keyring.open(sealed, secretPlace(place.environment, name, one)),
      ])
      const signal = AbortSignal.timeout(30_000)
      const { keptMs } = await logIn({
        profile,
        user,
        secrets: Object.fromEntries(opened),
        signal,
        fetch: globalThis.fetch,
      })
      return {
        json: { name, user, keptMs },
        lines: [`${name}: a token came, which is kept for ${Math.round(keptMs / 1_000)} s`],
      }
    },
  },
  {
    name: 'rotate',
    about: `seal all secrets with the newest key of ${KEYS_VARIABLE}`,
    examples: ['logins rotate'],
    changes: true,
    async run(call) {
      const keyring = keyringOf(call)
      const { secrets, profiles, key } = await rotateSecrets(call.db, keyring)
      const others = keyring.names.slice(1)
      const after =
        others.length > 0
          ? `; when the tokens of before have ended, ${others.join(', ')} can go from ${KEYS_VARIABLE}`
          : ''
      return {
        json: { secrets, profiles, key },
        lines: [
          `${secrets} secrets of ${profiles.length} profiles are sealed with ${key} now, all others were before${after}`,
        ],
        audit: { after: { key, secrets, profiles }, unchanged: secrets === 0 },
      }
    },
  },
  {
    name: 'remove',
    about: 'remove a login profile; tokens that were given end by themselves',
    arguments: A_PROFILE,
    options: ENVIRONMENT_OPTION,
    examples: ['logins remove crm --reason "we have left them"'],
    changes: true,
    async run(call) {
      const place = placeOf(call)
      const { profile, version } = await removeProfile(place, call.args[0] ?? '')
      return {
        json: { removed: profile.name },
        lines: [`${profile.name}: removed`],
        audit: { before: { name: profile.name, version } },
      }
    },
  },
]

const keyringOf = ({ env }: PackageCall): Keyring => Keyring.from(env[KEYS_VARIABLE])

async function secretsFrom({ env, options }: PackageCall): Promise<Record<string, string>> {
  const file = options['secretsFile']
  const secrets = file === undefined ? {} : ((await jsonFrom(String(file))) as Record<string, string>)
  const named = options['secretsFromEnv']
  for (const one of named === undefined ? [] : String(named).split(',')) {
    const [secret = '', variable] = one.split('=')
    const text = variable === undefined ? undefined : env[variable]
    if (text === undefined) {
      // Never what stands behind '=': people put the secret itself there. Without '=' it may be all of it.
      const problem = variable === undefined ? "got an entry without '='" : `got none for ${secret}`
      throw new UsageError(`--secrets-from-env: expected <secret>=<variable> of a variable that is set, ${problem}`)
    }
    secrets[secret] = text
  }
  return secrets
}

async function jsonFrom(file: string): Promise<Record<string, unknown>> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    throw new UsageError(`expected a JSON file, got ${file} (${(error as NodeJS.ErrnoException).code})`)
  }
  try {
    const json: unknown = JSON.parse(text)
    if (typeof json === 'object' && json !== null && !Array.isArray(json)) return json as Record<string, unknown>
  } catch {
    // The message would quote the file.
  }
  throw new UsageError(`expected a JSON object in ${file}, got something else`)
}
