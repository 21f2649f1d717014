import { randomInt } from 'node:crypto'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { durationMs } from '../../time/index.js'
import { BREAKABLE, type Breakable } from './broken-protocols.js'
import type { Verdict } from './judgement.js'
import type { Screen } from './screen.js'

interface DemoFlags {
  readonly json?: boolean
  readonly break?: Breakable
  readonly documents?: number
  readonly lockTimeout: number
  readonly ledger?: string
  readonly faults?: boolean
  readonly kubernetes?: boolean
  readonly minutes: number
  readonly seed?: number
}

const DEFAULT_DOCUMENTS = 300
const DEFAULT_KUBERNETES_DOCUMENTS = 100
const DEFAULT_LOCK_TIMEOUT_MS = 4_000
/** 2 is what every command says of options that it doesn't know. */
const EXIT_OF = { shown: 0, off: 1, 'not shown': 3 } as const satisfies Record<Verdict, number>
const EXIT_INTERRUPTED = 130

/**
 * Adds `demo`: three replicas work on hundreds of gateways, one is killed, one stopped, one paused past its leases, and a
 * report says whether every recorded step still happened once. Exit code 0: all is as it should be; 1: a figure is off;
 * 3: it could not be shown, which is no failure; 130: interrupted.
 */
export function registerDemo(program: Command): void {
  program
    .command('demo')
    .description('three replicas, one killed, one stopped, one paused past its leases: was every step recorded once?')
    .option('--json', 'print one JSON object instead of the report')
    .addOption(
      new Option(
        '--break <protection>',
        'turn off one protection of the lock protocol and see what goes wrong',
      ).choices(Object.keys(BREAKABLE)),
    )
    .option('--ledger <file>', 'write the ledger to a file, an entry a line')
    .addOption(new Option('--faults', 'instead: a random fault every second').conflicts('break'))
    .addOption(
      new Option('--kubernetes', 'instead: domains and instances in a real Kubernetes control plane').conflicts([
        'break',
        'faults',
        'ledger',
      ]),
    )
    .addOption(new Option('--minutes <n>', 'with --faults: how long they come').argParser(positive).default(5))
    .addOption(new Option('--seed <n>', 'with --faults: which faults come, printed by each run').argParser(whole))
    .addOption(new Option('--documents <count>', 'how many gateways').argParser(count).hideHelp())
    .addOption(
      new Option('--lock-timeout <duration>', 'the lock timeout, from 2s')
        .argParser(lockTimeout)
        .default(DEFAULT_LOCK_TIMEOUT_MS)
        .hideHelp(),
    )
    .action(async (_options: unknown, command: Command) => {
      process.exitCode = await demo(command.optsWithGlobals<DemoFlags>())
    })
}

function count(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value >= 20) return value
  throw new InvalidArgumentError('expected a whole number from 20')
}

function positive(text: string): number {
  const value = Number(text)
  if (value > 0 && Number.isFinite(value)) return value
  throw new InvalidArgumentError('expected a number above 0')
}

function whole(text: string): number {
  const value = Number(text)
  if (text.trim() !== '' && Number.isInteger(value) && value >= 0 && value < 2 ** 32) return value
  throw new InvalidArgumentError('expected a whole number from 0 to 4294967295')
}

function lockTimeout(text: string): number {
  try {
    const ms = durationMs(text)
    if (ms >= 2_000) return ms
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message)
  }
  throw new InvalidArgumentError('expected at least 2s')
}

/** What a run has to say. */
interface Shown {
  readonly result: { readonly verdict: Verdict }
  readonly text: string
  /** With `--json`, of what is off or wasn't shown, on standard error. */
  readonly evidence?: readonly string[]
}

async function demo(flags: DemoFlags): Promise<number> {
  const [{ Interrupted }, { Screen }] = await Promise.all([import('./run-demo.js'), import('./screen.js')])
  const interrupted = new AbortController()
  const interrupt = () => interrupted.abort()
  for (const signal of SIGNALS) process.on(signal, interrupt)
  const screen = new Screen(undefined, undefined, flags.kubernetes ? 'documents' : 'gateways')
  const { json = false } = flags
  const run = flags.kubernetes ? kubernetesRun : flags.faults ? faultsRun : usualRun
  try {
    const { result, text, evidence = [] } = await run(flags, screen, interrupted.signal)
    screen.end()
    process.stdout.write(json ? `${JSON.stringify(result)}\n` : `\n${text}`)
    if (json && evidence.length > 0) process.stderr.write(`${evidence.join('\n')}\n`)
    return EXIT_OF[result.verdict]
  } catch (error) {
    screen.end()
    const { name, message } = error as Error
    const verdict: Verdict = 'not shown'
    const exitCode = error instanceof Interrupted ? EXIT_INTERRUPTED : EXIT_OF[verdict]
    const title = error instanceof Interrupted ? '' : 'could not be shown: '
    if (json) process.stdout.write(`${JSON.stringify({ verdict, error: { name, message, exitCode } })}\n`)
    else process.stderr.write(`phaselock demo: ${title}${message}\n`)
    return exitCode
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupt)
  }
}

// Each is loaded when asked for: the rest of the CLI needs none of it.

async function usualRun(flags: DemoFlags, screen: Screen, signal: AbortSignal): Promise<Shown> {
  const [{ runDemo }, { reportText }] = await Promise.all([import('./run-demo.js'), import('./report.js')])
  const { documents = DEFAULT_DOCUMENTS, lockTimeout: lockTimeoutMs, break: broken = null, ledger: ledgerFile } = flags
  const report = await runDemo({ documents, lockTimeoutMs, broken, screen, signal, ledgerFile })
  return { result: report.result, text: reportText(report) }
}

async function faultsRun(flags: DemoFlags, screen: Screen, signal: AbortSignal): Promise<Shown> {
  const { faultsReportText, runFaults } = await import('./faults/index.js')
  const { minutes, seed = randomInt(2 ** 32), lockTimeout: lockTimeoutMs, ledger: ledgerFile } = flags
  const soak = await runFaults({ minutes, seed, lockTimeoutMs, screen, signal, ledgerFile })
  return { result: soak.result, text: faultsReportText(soak), evidence: soak.evidence }
}

async function kubernetesRun(flags: DemoFlags, screen: Screen, signal: AbortSignal): Promise<Shown> {
  const { kubernetesReportText, runKubernetes } = await import('./kubernetes/index.js')
  const { documents = DEFAULT_KUBERNETES_DOCUMENTS } = flags
  const { result, evidence } = await runKubernetes({ documents, screen, signal })
  return { result, text: kubernetesReportText(result, evidence), evidence }
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
