import { accessSync, constants, statSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { BENCHMARKS } from './benchmarks.mjs'

const OPTIONS = {
  json: {
    type: 'boolean',
    about: 'print one JSON object, in a line, for each name on standard output instead of a table',
  },
  quick: { type: 'boolean', about: 'a short run, under a minute' },
  documents: { type: 'string', about: 'documents a round' },
  rounds: { type: 'string', about: 'rounds of each contestant' },
  minutes: { type: 'string', about: 'how long it is under load' },
  server: {
    type: 'string',
    value: '<path or URI>',
    about: 'the server: a mongod to start, or one that runs (a mongodb:// URI)',
  },
  'replica-set': {
    type: 'boolean',
    about: 'on three members of that mongod, or of the one that is found, on this machine',
  },
  help: { type: 'boolean', short: 'h', about: 'this text' },
}
const FOR_ALL = ['json', 'quick', 'help']
const WITH_SERVER = ['server', 'replica-set']
const IS_URI = /^mongodb(\+srv)?:\/\//
const MOST = 9_999_999

/** Thrown for arguments that can't be used; its message is for the caller. */
export class UsageError extends Error {
  name = 'UsageError'
}

/**
 * @returns `{ help: true }`, or what to run: `{ isReport, names, ... }`, with the options given; no names with a report: all
 * @throws UsageError
 */
export function readArguments(args) {
  const { values, positionals } = parse(args)
  if (values.help) return { help: true }
  const isReport = positionals[0] === 'report'
  const names = isReport ? positionals.slice(1) : positionals
  const known = Object.keys(BENCHMARKS)
  const unknown = names.find((name) => !known.includes(name))
  if (unknown !== undefined || (names.length === 0 && !isReport)) {
    const got = unknown === undefined ? 'none' : `'${unknown}'`
    throw new UsageError(`expected the name of a benchmark, got ${got}; known: ${[...known, 'report'].join(', ')}`)
  }
  for (const option of Object.keys(values)) {
    const other = (isReport ? ['report'] : names).find((name) => !taken(name).includes(option))
    if (other !== undefined) throw new UsageError(`${other} takes no --${option}`)
  }
  return {
    isReport,
    names,
    json: values.json ?? false,
    quick: values.quick ?? false,
    ...serverGiven(values),
    ...given(values, 'documents', /^[1-9]\d*$/, 'a whole number from 1'),
    ...given(values, 'rounds', /^[1-9]\d*$/, 'a whole number from 1'),
    ...given(values, 'minutes', /^(?!0*\.?0*$)\d+(\.\d+)?$/, 'a number above 0'),
  }
}

function parse(args) {
  try {
    return parseArgs({ args, options: OPTIONS, allowPositionals: true })
  } catch (error) {
    throw new UsageError(error.message)
  }
}

/** The options of a benchmark, or of `report`. */
function taken(name) {
  const { takes: own = [], server: hasServer = true } = BENCHMARKS[name] ?? {}
  return [...FOR_ALL, ...own, ...(hasServer ? WITH_SERVER : [])]
}

function serverGiven({ server, 'replica-set': replicaSet = false }) {
  const uri = server !== undefined && IS_URI.test(server) ? server : undefined
  if (uri && replicaSet)
    throw new UsageError('--replica-set starts one: expected the path of a mongod with it, got a URI')
  if (server !== undefined && !uri && !isProgram(server)) {
    throw new UsageError(`--server: expected the path of a mongod, or a mongodb:// URI, got '${server}'`)
  }
  return { on: { uri, mongod: uri ? undefined : server, replicaSet } }
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

function given(values, option, pattern, expected) {
  const text = values[option]
  if (text === undefined) return {}
  if (pattern.test(text) && Number(text) <= MOST) return { [option]: Number(text) }
  throw new UsageError(`--${option}: expected ${expected} to ${MOST}, got '${text}'`)
}

export const USAGE = 'usage: npm run bench -- <name...> [--json] [--quick] (names and all options: --help)'

export function helpText() {
  const name = (text) => `  ${text.padEnd(26)}`
  const takes = ({ takes: own }) => (own.length > 0 ? ` (${own.map((option) => `--${option} <n>`).join(', ')})` : '')
  return [
    'usage: npm run bench -- <name...> [options]',
    '',
    ...Object.entries(BENCHMARKS).map(([each, benchmark]) => `${name(each)}${benchmark.about}${takes(benchmark)}`),
    `${name('report [names]')}runs these (all but soak) in turn, each in full, and renews results.json, the table in`,
    `${name('')}README.md and chart.svg; a run of some names renews their part`,
    '',
    ...Object.entries(OPTIONS).map(
      ([each, { type, value = '<n>', about }]) => `${name(`--${each}${type === 'string' ? ` ${value}` : ''}`)}${about}`,
    ),
    '',
    'README.md says how each figure is taken. Exit code 1: something was not as it should be (wrong); 2: usage.',
  ].join('\n')
}
