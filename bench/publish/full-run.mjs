/** `npm run bench -- report [names]`: the last full run, as results.json, the tables in README.md and chart.svg. */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { BENCHMARKS } from '../benchmarks.mjs'
import { claimsTable } from '../claims/table.mjs'
import { chart } from './chart.mjs'
import { chartOf, peersTable, provenance, qualitiesTable, serversTable, targetsTable } from './published.mjs'

const here = (name) => fileURLToPath(new URL(name, import.meta.url))
/** By the server that they were taken on, in the words of the page. */
const RESULTS = {
  embedded: { title: 'embedded engine', file: here('../results.json') },
  mongod: { title: '`mongod`, standalone', file: here('../results-mongod.json') },
  replicaSet: { title: '`mongod`, three members on one machine', file: here('../results-replica-set.json') },
}
const README = here('../README.md')
/** Has the table of `claims`. */
const LOCKS = here('../../docs/compare/locks-measured.md')
const CHART = here('../chart.svg')
/** Too long to be a part of each report: run by name, it takes its ten minutes. */
const LEFT_OUT = ['soak']
const SHORTER = { memory: ['--minutes', '0.5'] }
/** None takes so long: one that does hangs. It is ended, and the others go on. */
const LIMIT_MINUTES = 15
const CLOSES_WITHIN_MS = 5_000

/**
 * Runs benchmarks one after the other, each in a process of its own, and renews their part of what is published; after
 * each of them, so that a run that is broken off has published what it has. It always ends, without anybody who watches it.
 * @param names those to run, in full; none: all but soak, memory for half a minute instead of ten
 * @param on the server; what isn't taken on the embedded engine has results of its own, beside those
 * @returns whether all of them ran and had nothing wrong
 */
export async function report({ names, quick, on: { uri, mongod, replicaSet } }) {
  const server = [...(uri || mongod ? ['--server', uri ?? mongod] : []), ...(replicaSet ? ['--replica-set'] : [])]
  const { file } = RESULTS[replicaSet ? 'replicaSet' : server.length > 0 ? 'mongod' : 'embedded']
  const all = Object.keys(BENCHMARKS).filter((name) => !LEFT_OUT.includes(name))
  let sound = true
  for (const name of names.length > 0 ? names : all) {
    console.error(`\n=== ${name}`)
    const flags = [...(quick ? ['--quick'] : []), ...(names.length === 0 && !quick ? (SHORTER[name] ?? []) : [])]
    const { result, code } = await run(name, BENCHMARKS[name].server === false ? flags : [...flags, ...server])
    if (code !== 0 || !result) {
      console.error(
        `${name}: exit code ${code}; ${result ? 'its figures are published' : 'nothing of it is published'}`,
      )
      sound = false
    }
    if (result) await publish(name, result, file)
  }
  return sound
}

async function run(name, flags) {
  const child = spawn(process.execPath, [here('../main.mjs'), name, '--json', ...flags], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let text = ''
  child.stdout.on('data', (chunk) => {
    text += chunk
  })
  const limit = setTimeout(() => {
    console.error(`${name}: still running after ${LIMIT_MINUTES} minutes: ended`)
    // What it has started notices that it is gone, and ends too.
    child.kill('SIGKILL')
  }, LIMIT_MINUTES * 60_000)
  const closed = once(child, 'close')
  const [code] = await once(child, 'exit')
  clearTimeout(limit)
  // All that it wrote has come with `close`; one that was ended may have left somebody who keeps its output open.
  await Promise.race([closed, sleep(CLOSES_WITHIN_MS, undefined, { ref: false })])
  try {
    return { result: JSON.parse(text), code }
  } catch {
    return { result: undefined, code }
  }
}

async function publish(name, { bench: _bench, targets: _targets, ...figures }, file) {
  const results = await read(file)
  results[name] = { takenAt: new Date().toISOString().slice(0, 16), ...figures }
  const inOrder = Object.keys(BENCHMARKS).filter((each) => results[each])
  await writeFile(
    file,
    `${JSON.stringify(Object.fromEntries(inOrder.map((each) => [each, results[each]])), null, 2)}\n`,
  )
  await formatted(file)
  const embedded = await read(RESULTS.embedded.file)
  await writeTables(embedded)
  const drawn = chartOf(embedded)
  if (drawn) await writeFile(CHART, chart(drawn))
}

const read = async (file) => JSON.parse(await readFile(file, 'utf8').catch(() => '{}'))

/** As the project's formatter has it; without it the figures are the same. */
const formatted = (file) =>
  promisify(execFile)('npx', ['--no-install', 'biome', 'format', '--write', file]).catch(() => undefined)

async function writeTables(results) {
  let text = await readFile(README, 'utf8')
  text = between(text, 'targets', `${provenance(results)}\n\n${targetsTable(results)}`)
  const runs = await Promise.all(Object.values(RESULTS).map(async ({ title, file }) => [title, await read(file)]))
  text = between(text, 'qualities', qualitiesTable(results))
  text = between(text, 'servers', serversTable(Object.fromEntries(runs)))
  text = between(text, 'peers', peersTable(results) || 'Not taken yet.')
  await writeFile(README, text)
  if (results.claims) {
    await writeFile(LOCKS, between(await readFile(LOCKS, 'utf8'), 'claims', claimsTable(results.claims)))
  }
}

/** Replaces what stands between `<!-- name -->` and `<!-- /name -->`. */
export function between(text, name, content) {
  const [begin, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`]
  const from = text.indexOf(begin)
  const to = text.indexOf(end)
  if (from < 0 || to < from) throw new Error(`expected ${begin} and ${end} in the page`)
  return `${text.slice(0, from + begin.length)}\n\n${content}\n\n${text.slice(to)}`
}
