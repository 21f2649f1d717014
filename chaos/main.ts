/**
 * `npm run chaos -- [--faults | --replica-set] [--kubernetes] [--break <protection>] [options]`: what proves Phaselock, and is not part of it.
 * docs/chaos.md says what happens in each, and what the figures mean.
 */
import { randomInt } from 'node:crypto'
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import { BREAKABLE, type Breakable } from './broken/rewrites.ts'
import { FAULT_KINDS, type FaultKind, REPLICA_SET_FAULT_KINDS } from './faults/plan.ts'
import { type SharedFlags, sharedOptions } from './options.ts'
import type { Screen } from './proof/screen.ts'
import { type Shown, show } from './proof/show.ts'

interface Flags extends SharedFlags {
  readonly faults?: boolean
  readonly kubernetes?: boolean
  readonly replicaSet?: boolean
  readonly break?: Breakable
  readonly minutes: number
  readonly seed?: number
  readonly only?: readonly FaultKind[]
  readonly beside?: string
}
type Run = (flags: Flags, screen: Screen, signal: AbortSignal) => Promise<Shown>

const DEFAULT_KUBERNETES_DOCUMENTS = 100
const EXIT_USAGE = 2

// Each is loaded only when asked for: the Kubernetes client takes a while.

const faults: Run = async (flags, screen, signal) => {
  const [{ runFaults }, { faultsReportText }] = await Promise.all([
    import('./faults/run-faults.ts'),
    import('./faults/faults-report.ts'),
  ])
  const {
    replicaSet = false,
    minutes,
    seed = randomInt(2 ** 32),
    only,
    beside,
    lockTimeout: lockTimeoutMs,
    ledger: ledgerFile,
  } = flags
  const report = await runFaults({ replicaSet, minutes, seed, only, beside, lockTimeoutMs, screen, signal, ledgerFile })
  return { ...report, text: faultsReportText(report) }
}

const kubernetes: Run = async ({ documents = DEFAULT_KUBERNETES_DOCUMENTS }, screen, signal) => {
  const [{ runKubernetes }, { kubernetesReportText }] = await Promise.all([
    import('./kubernetes/run-kubernetes.ts'),
    import('./kubernetes/result.ts'),
  ])
  const { result, evidence } = await runKubernetes({ documents, screen, signal })
  return { result, evidence, text: kubernetesReportText(result, evidence) }
}

const broken: Run = async ({ lockTimeout: lockTimeoutMs, ledger: ledgerFile, ...flags }, screen, signal) => {
  const { brokenReportText, runBroken } = await import('./broken/run-broken.ts')
  const report = await runBroken({ broken: flags.break!, lockTimeoutMs, screen, signal, ledgerFile })
  return { ...report, text: brokenReportText(report) }
}

/** Without a choice it runs faults, then Kubernetes. Resolves to the exit code of the first that isn't shown. */
async function chaos(flags: Flags): Promise<number> {
  const { json = false } = flags
  if (flags.break) return show('chaos', json, (...given) => broken(flags, ...given))
  const onlyFaults = flags.faults || flags.replicaSet
  const both = !onlyFaults && !flags.kubernetes
  const code = onlyFaults || both ? await show('chaos', json, (...given) => faults(flags, ...given)) : 0
  if (code !== 0 || !(flags.kubernetes || both)) return code
  return show('chaos', json, (...given) => kubernetes(flags, ...given), 'documents')
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

const program = new Command('chaos')
  .description('Replicas at work, and everything else against them: is anything lost, repeated, overlapping or stuck?')
  .addOption(new Option('--faults', 'a random fault every second'))
  .addOption(
    new Option('--replica-set', 'the faults on a replica set of three: elections, kills, pauses, partitions, restarts'),
  )
  .addOption(new Option('--kubernetes', 'domains and instances in a real Kubernetes control plane').conflicts('ledger'))
  .addOption(
    new Option('--break <protection>', 'turn off one protection of the lock protocol and see what goes wrong')
      .choices(Object.keys(BREAKABLE))
      .conflicts(['faults', 'kubernetes', 'replicaSet']),
  )
  .addOption(new Option('--minutes <n>', 'of faults: how long they come').argParser(positive).default(5))
  .addOption(new Option('--seed <n>', 'of faults: which come, printed by each run').argParser(whole))
  .addOption(
    new Option('--only <fault...>', 'of faults: these instead of all').choices([
      ...new Set([...FAULT_KINDS, ...REPLICA_SET_FAULT_KINDS]),
    ]),
  )
  .addOption(
    new Option('--beside <checkout>', 'of faults: every second replica is of another version, a built checkout of it'),
  )
  .addHelpText(
    'after',
    '\nWithout --faults, --replica-set, --kubernetes and --break: faults, then Kubernetes. More: docs/chaos.md',
  )
  .showHelpAfterError('(see --help)')
  .exitOverride()
for (const option of sharedOptions()) program.addOption(option)

try {
  program.parse()
  process.exitCode = await chaos(program.opts<Flags>())
} catch (error) {
  if (!(error instanceof CommanderError)) throw error
  process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE
}
