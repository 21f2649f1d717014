import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { type Command, Option } from 'commander'
import { UsageError } from '../../operations/index.js'
import { numbered } from '../../options/index.js'
import { systemClock } from '../../time/index.js'
import type { CliContext } from '../context.js'
import { EXIT } from '../errors.js'
import { Interrupted } from './clean-ups.js'
import type { DemoResult, Stage } from './run-demo.js'

/** The exit code for what could not be shown: 2 is the exit code of every command for an unknown option. */
const EXIT_NOT_SHOWN = 3
const MAIN = fileURLToPath(new URL('../main.js', import.meta.url))
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** Options of runs that test Phaselock and are not part of the package, with the script that has them. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  proof: 'demo -- --proof',
  ledger: 'demo -- --proof --ledger',
  documents: 'demo -- --proof --documents',
  lockTimeout: 'demo -- --proof --lock-timeout',
  sync: 'demo -- --sync',
  files: 'demo -- --sync --files',
  faults: 'chaos -- --faults',
  kubernetes: 'chaos -- --kubernetes',
  break: 'chaos -- --break',
  minutes: 'chaos -- --minutes',
  seed: 'chaos -- --seed',
}
const flagOf = (name: string) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`

/**
 * Adds `demo`: tenants come up, their storage goes down and comes back, a replica is killed, and nothing is lost. Exit code 0: shown; 1: a figure
 * that must be 0 isn't; 3: it could not be shown, which is no failure; 130: interrupted.
 */
export function registerDemo(program: Command, context: CliContext): void {
  const command = program
    .command('demo')
    .description(
      'a minute of operations: tenants come up, their storage fails and comes back, a replica is killed (kill -9), and nothing is lost',
    )
    .option('--json', 'print one JSON object instead of the report')
  for (const name of Object.keys(ELSEWHERE))
    command.addOption(new Option(`${flagOf(name)} [value]`, 'is in the repository of Phaselock').hideHelp())
  command.action(async () => {
    const flags = command.optsWithGlobals<Record<string, string | true | undefined>>()
    const elsewhere = Object.keys(ELSEWHERE).find((name) => flags[name] !== undefined)
    if (elsewhere !== undefined) throw notHere(elsewhere, flags[elsewhere])
    process.exitCode = await demo(context, flags['json'] === true)
  })
}

function notHere(name: string, value: string | true | undefined): UsageError {
  const script = `npm run ${ELSEWHERE[name]}${typeof value === 'string' ? ` ${value}` : ''}`
  return new UsageError(
    `${flagOf(name)} belongs to the runs that test Phaselock, which are not part of the package: in the repository of Phaselock, run \`${script}\` (docs/demo.md, docs/chaos.md)`,
  )
}

async function demo(context: CliContext, json: boolean): Promise<number> {
  const { output } = context
  const interrupted = new AbortController()
  const interrupt = () => interrupted.abort()
  for (const signal of SIGNALS) process.on(signal, interrupt)
  const startedMs = systemClock.monotonicMs()
  const note = (text: string) => {
    const seconds = (systemClock.monotonicMs() - startedMs) / 1_000
    output.problem(`${seconds.toFixed(1).padStart(5)} s  ${text}`)
  }
  try {
    // Loaded when asked for: the rest of the CLI needs none of it.
    const { runDemo } = await import('./run-demo.js')
    const result = await runDemo({ note, type: typing(context) }, interrupted.signal)
    if (json) output.json(result)
    else output.line(reportOf(result))
    return result.verdict === 'shown' ? EXIT.ok : EXIT.failure
  } catch (error) {
    const isInterrupted = error instanceof Interrupted
    const exitCode = isInterrupted ? EXIT.interrupted : EXIT_NOT_SHOWN
    const { name, message } = error as Error
    if (json) output.json({ verdict: 'not shown', error: { name, message, exitCode } })
    else output.problem(`phaselock demo: ${isInterrupted ? '' : 'could not be shown: '}${message}`)
    return exitCode
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupt)
  }
}

/** Runs commands in processes of their own, as a person would. */
const typing =
  ({ env, cwd }: CliContext): Stage['type'] =>
  (args, { uri, name }) => {
    const child = spawn(process.execPath, [MAIN, ...args], {
      ...{ cwd, stdio: ['ignore', 'pipe', 'pipe'] },
      env: { ...env, MONGODB_URI: uri, PHASELOCK_DATABASE: name },
    })
    const parts: Buffer[] = []
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => parts.push(part))
    return new Promise((resolve, reject) => {
      child.once('error', reject)
      child.once('close', (code) => resolve({ text: Buffer.concat(parts).toString('utf8'), code: code ?? 1 }))
    })
  }

const reportOf = ({
  documents,
  lost,
  repeated,
  overlapping,
  stepsBegun,
  stepsRunAgain,
  leasesAtKill,
  recoverySeconds,
  seconds,
}: DemoResult) => `
${lost === 0 ? `All ${documents} tenants are ready.` : `${numbered(lost, 'tenant')} of ${documents} lost: please report this.`} By the ledger, steps lost ${lost}, repeated ${repeated}, overlapping ${overlapping}.
  ${numbered(stepsBegun, 'handler')} ran, ${stepsRunAgain} of them again: the storage was down, or their replica died
  ${numbered(leasesAtKill, 'tenant')} held by the replica that was killed, all taken over after ${recoverySeconds} s
  ${seconds} s in all

Try it yourself:
  npx phaselock start --lifecycles phaselock/tasks    # a replica; without MONGODB_URI on a local database
  npx phaselock add api-gateway                       # in another terminal: a document
  npx phaselock list api-gateway                      # what became of it; see also: show, why, causes, status, --help
`
