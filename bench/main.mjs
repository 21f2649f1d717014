/**
 * `npm run bench -- <name...> [options]`: runs benchmarks one after the other, each on a private server, and prints their figures as tables, or with
 * `--json` as one JSON object a line. What each figure means and how it is taken: README.md.
 */
import { helpText, readArguments, USAGE } from './arguments.mjs'
import { BENCHMARKS } from './benchmarks.mjs'
import { machine } from './machine.mjs'
import { printJson, printTable } from './report.mjs'
import { privateServer } from './server.mjs'
import { judged } from './targets.mjs'

const EXIT_WRONG = 1
const EXIT_USAGE = 2

const options = argumentsOrExit()
if (options.help) console.log(helpText())
else if (options.isReport) {
  const { report } = await import('./publish/full-run.mjs')
  process.exitCode = (await report(options)) ? 0 : EXIT_WRONG
} else for (const name of options.names) await one(name, options)

async function one(name, { names: _names, isReport: _isReport, json, on, ...given }) {
  const { module, server: needsServer = true } = BENCHMARKS[name]
  const benchmark = await import(module)
  const server = needsServer ? await privateServer(on) : undefined
  try {
    const progress = (line) => console.error(line)
    const figures = await benchmark.run(server, { ...given, progress })
    const result = { bench: name, quick: given.quick, ...figures, machine: machine(server?.description) }
    const targets = judged(figures)
    if (json) printJson({ ...result, ...(targets.length > 0 ? { targets } : {}) })
    else printTable(`${name}${given.quick ? ' (quick)' : ''}`, result, targets)
    if (figures.wrong > 0) process.exitCode = EXIT_WRONG
  } finally {
    await server?.close()
  }
}

function argumentsOrExit() {
  try {
    return readArguments(process.argv.slice(2))
  } catch (error) {
    if (error.name !== 'UsageError') throw error
    console.error(`${error.message}\n${USAGE}`)
    process.exit(EXIT_USAGE)
  }
}
