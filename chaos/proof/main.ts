/**
 * `npm run demo -- --proof`: three replicas work on hundreds of gateways, one is killed, one stopped, one paused past its leases. The report
 * says whether every recorded step still happened once. Exit code 0: all is as it should be; 1: a figure is off; 2: an option is wrong; 3: it
 * could not be shown, which is no failure; 130: interrupted.
 */
import { availableParallelism, loadavg } from 'node:os'
import { Command, CommanderError } from 'commander'
import { type SharedFlags, sharedOptions } from '../options.ts'
import { runDemo } from './run-demo.ts'
import { show } from './show.ts'
import { reportText } from './verdict.ts'

const DEFAULT_DOCUMENTS = 300
/** The number of processes per core that want to run, from which the proof takes minutes. */
const BUSY_FROM = 3
const EXIT_USAGE = 2

async function prove(flags: SharedFlags): Promise<number> {
  const { documents = DEFAULT_DOCUMENTS, lockTimeout: lockTimeoutMs, ledger: ledgerFile, json = false } = flags
  return await show('proof', json, async (screen, signal) => {
    const [load, cores] = [loadavg()[0]!, availableParallelism()]
    if (load >= BUSY_FROM * cores)
      screen.note(
        `this machine is busy (load ${load.toFixed(0)} on ${cores} cores): it takes minutes, and goes on as long as anything moves`,
      )
    const report = await runDemo({ documents, lockTimeoutMs, screen, signal, ledgerFile })
    return { result: report.result, text: reportText(report) }
  })
}

const program = new Command('demo --proof')
  .description('Three replicas, one killed, one stopped, one paused past its leases: was every step recorded once?')
  .option('--proof', 'this run')
  .showHelpAfterError('(see --help)')
  .exitOverride()
for (const option of sharedOptions()) program.addOption(option)

try {
  program.parse()
  process.exitCode = await prove(program.opts<SharedFlags>())
} catch (error) {
  if (!(error instanceof CommanderError)) throw error
  process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE
}
