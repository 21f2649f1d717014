/**
 * `npm run bench -- <name> [--json] [--quick] [--documents n] [--rounds n]`: runs one benchmark on a private server and
 * prints its figures as a table, or with `--json` as one JSON object. What each figure means and how it is taken:
 * README.md.
 */
import { parseArgs } from 'node:util'
import { printJson, printTable } from './report.mjs'
import { privateServer } from './server.mjs'

const NAMES = ['floor', 'steps', 'noop']

function die(problem) {
  console.error(
    `${problem}\nusage: npm run bench -- <${NAMES.join('|')}> [--json] [--quick] [--documents n] [--rounds n]`,
  )
  process.exit(2)
}

function readArguments() {
  const options = {
    json: { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    documents: { type: 'string' },
    rounds: { type: 'string' },
  }
  try {
    const { values, positionals } = parseArgs({ options, allowPositionals: true })
    return { ...values, names: positionals }
  } catch (error) {
    return die(error.message)
  }
}

function wholeNumber(text, name) {
  if (text === undefined || /^[1-9]\d{0,6}$/.test(text)) return text && Number(text)
  return die(`--${name}: expected a whole number from 1, got '${text}'`)
}

const { names, json, quick, ...given } = readArguments()
const documents = wholeNumber(given.documents, 'documents')
const rounds = wholeNumber(given.rounds, 'rounds')
const [name] = names
if (names.length !== 1 || !NAMES.includes(name)) die(`expected the name of one benchmark, got '${names.join(' ')}'`)

const benchmark = await import(`./${name}.mjs`)
const server = await privateServer()
try {
  const result = await benchmark.run(server, { quick, documents, rounds, progress: (line) => console.error(line) })
  if (json) printJson({ bench: name, quick, ...result })
  else printTable(`${name}${quick ? ' (quick)' : ''}`, result)
  if (result.wrong > 0) process.exitCode = 1
} finally {
  await server.close()
}
