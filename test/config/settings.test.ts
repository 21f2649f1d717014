import { readFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { describe, expect, test } from '@jest/globals'
import { InvalidSettings, readSettings, SETTINGS, settingsIn } from '../../src/config/index.js'
import { nearest } from '../../src/options/index.js'

/** The table of docs/settings.md, from the schema itself. */
function settingsTable(): string {
  const rows = SETTINGS.map(({ variable, flag, meaning, unit, fallback, special = '', options }) => {
    const wins = options?.map((option) => `\`${option}\``).join(', ') ?? 'not used'
    return [`\`${variable}\``, `\`--${flag}\``, meaning, unit, fallback, special, wins].map((cell) =>
      ` ${cell} `.replaceAll('|', '\\|'),
    )
  })
  const head = [' variable ', ' flag ', ' meaning ', ' unit ', ' default ', ' special values ', ' in a Nest app, wins ']
  return [head, head.map(() => ' --- '), ...rows].map((cells) => `|${cells.join('|')}|`).join('\n')
}

function problems(env: Record<string, string>, flags = {}): readonly string[] {
  try {
    readSettings(env, flags)
  } catch (error) {
    expect(error).toBeInstanceOf(InvalidSettings)
    return (error as InvalidSettings).problems
  }
  throw new Error('expected the settings to be refused')
}

describe('settings', () => {
  test('have their defaults without any environment', () => {
    expect(readSettings({})).toEqual({
      dataDir: '.phaselock',
      connectTimeout: 10_000,
      doorbell: 'auto',
      grace: 10_000,
      workers: 1,
      blockedAfter: 200,
      clockHold: 60_000,
      beatEvery: 10_000,
      sweepEvery: 300_000,
      tickEvery: 1_000,
      earlyRecovery: 'off',
      schedulesCollection: 'schedules',
      runsCollection: 'runs',
      auditFor: 90 * 86_400_000,
      httpHost: '0.0.0.0',
    })
  })

  test('have as many workers as there are cores, if asked for', () => {
    expect(readSettings({ PHASELOCK_WORKERS: 'auto' }).workers).toBe(availableParallelism())
  })

  test('come from the environment, and a flag wins', () => {
    const env = { MONGODB_URI: 'mongodb://a/x', POD_NAME: 'api-1', PHASELOCK_GRACE: '1m', PHASELOCK_HTTP: '8080' }
    expect(readSettings(env, { grace: '2s' })).toMatchObject({
      uri: 'mongodb://a/x',
      name: 'api-1',
      grace: 2_000,
      http: 8080,
    })
  })

  test('an empty variable counts as not set', () => {
    expect(readSettings({ PHASELOCK_GRACE: '', MONGODB_URI: ' ', PHASELOCK_WHATEVER: '' })).toMatchObject({
      grace: 10_000,
    })
  })

  test('all problems are reported at once, each with what was expected, what came and what to do', () => {
    const found = problems({ PHASELOCK_GRACE: '10', PHASELOCK_HTPP: '80', PHASELOCK_LOG: 'xml' }, { http: '70000' })
    expect(found).toHaveLength(4)
    expect(found[0]).toBe(
      "PHASELOCK_HTPP: expected a known setting, got an unknown one; did you mean 'PHASELOCK_HTTP'? Correct it or unset it",
    )
    expect(found).toContainEqual(expect.stringContaining('PHASELOCK_GRACE: expected a duration from 0s to 1h, such as'))
    expect(found).toContainEqual(
      expect.stringContaining("got '10'; add the unit ('10s' is 10 s); leave it out for the default (10s)"),
    )
    expect(found).toContainEqual(
      expect.stringContaining("--http: expected a whole number from 0 to 65535, got '70000'"),
    )
    expect(found).toContainEqual(expect.stringContaining("PHASELOCK_LOG: expected one of json, pretty, got 'xml'"))
  })

  test.each([
    ['PHASELOCK_GRACE', '2h', 'from 0s to 1h'],
    ['PHASELOCK_GRACE', '-1s', 'from 0s to 1h'],
    ['PHASELOCK_CONNECT_TIMEOUT', '1ms', 'from 100ms to 5m'],
    ['PHASELOCK_HTTP', '-1', 'from 0 to 65535'],
    ['PHASELOCK_HTTP', '80.5', 'from 0 to 65535'],
    ['PHASELOCK_DATABASE', 'a b', "a database's name"],
    ['POD_NAME', 'a~b', 'without ~ and #'],
    ['PHASELOCK_LOG_LEVEL', 'verbose', 'debug, info, warn, error, silent'],
  ])('%s=%s is refused: expected %s', (variable, value, expected) => {
    const [problem, ...more] = problems({ [variable]: value })
    expect(more).toEqual([])
    expect(problem).toContain(`${variable}: expected`)
    expect(problem).toContain(expected)
    expect(problem).toContain(`got '${value}'`)
  })

  test('an unknown setting that is near to none lists the known ones', () => {
    const [problem] = problems({ PHASELOCK_COLOUR_OF_THE_SKY: 'blue' })
    expect(problem).toContain('known: PHASELOCK_DATABASE, ')
    expect(problem).toContain('. Correct it or unset it')
  })

  test('what Kubernetes injects for a Service named phaselock is no setting and no reason to refuse', () => {
    const injected = {
      PHASELOCK_PORT: 'tcp://10.0.0.7:8080',
      PHASELOCK_SERVICE_HOST: '10.0.0.7',
      PHASELOCK_SERVICE_PORT: '8080',
      PHASELOCK_SERVICE_PORT_HTTP: '8080',
      PHASELOCK_PORT_8080_TCP: 'tcp://10.0.0.7:8080',
      PHASELOCK_PORT_8080_TCP_ADDR: '10.0.0.7',
      PHASELOCK_PORT_8080_TCP_PORT: '8080',
      PHASELOCK_PORT_8080_TCP_PROTO: 'tcp',
      PHASELOCK_HTTP_PORT: 'tcp://10.0.0.8:80',
      PHASELOCK_HTTP_SERVICE_HOST: '10.0.0.8',
    }
    expect(readSettings(injected)).toEqual(readSettings({}))
    expect(problems({ PHASELOCK_PORT: '8080' })[0]).toContain('PHASELOCK_PORT: expected a known setting')
  })

  test('variables of the tests and of the embedded engine are no settings, and no reason to refuse', () => {
    const others = {
      PHASELOCK_TEST_FOLDER: '/tmp/x',
      PHASELOCK_TEST_KILLS: '50',
      PHASELOCK_BLAST_RUNS: '500',
      PHASELOCK_BLAST_SEED: '7',
      PHASELOCK_EMBEDDED_MODULE: '/x.js',
    }
    expect(readSettings(others)).toEqual(readSettings({}))
    expect(problems({ PHASELOCK_BLAST: '1' })).toHaveLength(1)
  })

  test('those that an environment names come without the defaults of the others', () => {
    expect(settingsIn({ PHASELOCK_GRACE: '60s', PHASELOCK_DOORBELL: '', PHASELOCK_TEST_RUN: '1' })).toEqual({
      grace: 60_000,
    })
  })

  test('no setting has the name of a variable that Kubernetes may inject', () => {
    for (const { variable } of SETTINGS) expect(variable).not.toMatch(/_PORT$|_SERVICE_|_PORT_\d/)
  })

  test('docs/settings.md holds the table of the schema', async () => {
    const page = await readFile(new URL('../../docs/settings.md', import.meta.url), 'utf8')
    expect(page).toContain(settingsTable())
  })
})

describe('did you mean', () => {
  test.each([
    ['Deletd', 'Deleted'],
    ['runing', 'Running'],
    ['Stopepd', 'Stopped'],
    ['Zebra', undefined],
  ])('%s -> %s', (given, meant) => {
    expect(nearest(given, ['Running', 'Stopped', 'Deleted'])).toBe(meant)
  })
})
