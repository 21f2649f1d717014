import { availableParallelism, loadavg } from 'node:os'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { UsageError } from '../../operations/index.js'
import { durationMs } from '../../time/index.js'
import { show } from './show.js'

const DEFAULT_LOCK_TIMEOUT_MS = 4_000
const DEFAULT_DOCUMENTS = 300
/** The number of processes per core that want to run, from which the demo takes minutes. */
const BUSY_FROM = 3
/** Options of runs that are not part of the package. */
const MOVED = ['faults', 'kubernetes', 'break', 'minutes', 'seed'] as const

type DemoFlags = SharedFlags & Partial<Record<(typeof MOVED)[number], string | true>>

/**
 * Adds `demo`: three replicas work on hundreds of gateways, one is killed, one stopped, one paused past its leases. Its report says whether
 * every recorded step still happened once. Exit code 0: all is as it should be; 1: a figure is off;
 * 3: it could not be shown, which is no failure; 130: interrupted.
 */
export function registerDemo(program: Command): void {
  const command = program
    .command('demo')
    .description('three replicas, one killed, one stopped, one paused past its leases: was every step recorded once?')
  for (const option of sharedOptions()) command.addOption(option)
  for (const name of MOVED) command.addOption(new Option(`--${name} [value]`, 'has moved to npm run chaos').hideHelp())
  command.action(async () => {
    process.exitCode = await demo(command.optsWithGlobals<DemoFlags>())
  })
}

async function demo(flags: DemoFlags): Promise<number> {
  const moved = MOVED.find((name) => flags[name] !== undefined)
  if (moved) {
    const value = flags[moved] === true ? '' : ` ${flags[moved]}`
    throw new UsageError(
      `--${moved} has moved out of phaselock demo: in the repository of Phaselock, run \`npm run chaos -- --${moved}${value}\` (docs/chaos.md)`,
    )
  }
  const { documents = DEFAULT_DOCUMENTS, lockTimeout: lockTimeoutMs, ledger: ledgerFile, json = false } = flags
  return show('phaselock demo', json, async (screen, signal) => {
    // Loaded when asked for: the rest of the CLI needs none of it.
    const [{ runDemo }, { reportText }] = await Promise.all([import('./run-demo.js'), import('./verdict.js')])
    const [load, cores] = [loadavg()[0]!, availableParallelism()]
    if (load >= BUSY_FROM * cores)
      screen.note(
        `this machine is busy (load ${load.toFixed(0)} on ${cores} cores): it takes minutes, and goes on as long as anything moves`,
      )
    const report = await runDemo({ documents, lockTimeoutMs, screen, signal, ledgerFile })
    return { result: report.result, text: reportText(report) }
  })
}

function count(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value >= 20) return value
  throw new InvalidArgumentError('expected a whole number of at least 20')
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

/** Options that the demo and the runs of chaos/ share. */
export const sharedOptions = (): readonly Option[] => [
  new Option('--json', 'print one JSON object instead of the report'),
  new Option('--ledger <file>', 'write the ledger to a file, one entry per line'),
  new Option('--documents <count>', 'how many documents').argParser(count).hideHelp(),
  new Option('--lock-timeout <duration>', 'the lock timeout, at least 2s')
    .argParser(lockTimeout)
    .default(DEFAULT_LOCK_TIMEOUT_MS)
    .hideHelp(),
]

export interface SharedFlags {
  readonly json?: boolean
  readonly ledger?: string
  readonly documents?: number
  readonly lockTimeout: number
}
