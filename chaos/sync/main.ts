/**
 * `npm run demo -- --sync`: three replicas sync a git repository with a vector store, one is killed, one paused past its lease. The report
 * says whether the store holds each chunk exactly once. Exit code 0: it does; 1: a figure is off; 2: an option is wrong; 3: it could not be
 * shown, for example because Qdrant's engine can't be installed; 130: interrupted.
 */
import { Command, CommanderError, InvalidArgumentError } from 'commander'
import { show } from '../proof/show.ts'
import { runSync } from './run-sync.ts'
import { reportText } from './verdict.ts'

const MOST_FILES = 2_000
/** Three batches of 200 files: one is done before the kill. */
const LEAST_FILES = 600
const EXIT_USAGE = 2

function count(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value >= LEAST_FILES && value <= MOST_FILES) return value
  throw new InvalidArgumentError(`expected a whole number from ${LEAST_FILES} to ${MOST_FILES}`)
}

const program = new Command('demo --sync')
  .description(
    'A repository synced by three replicas, one killed, one paused past its lease: is each chunk there once?',
  )
  .option('--sync', 'this run')
  .option('--json', 'print one JSON object instead of the report')
  .option('--files <count>', 'the number of files, from node_modules', count, MOST_FILES)
  .showHelpAfterError('(see --help)')
  .exitOverride()

try {
  program.parse()
  const { json = false, files } = program.opts<{ json?: boolean; files: number }>()
  process.exitCode = await show(
    'sync',
    json,
    async (screen, signal) => {
      const report = await runSync({ files, screen, signal })
      return { result: report.result, text: reportText(report), evidence: report.evidence }
    },
    'files',
  )
} catch (error) {
  if (!(error instanceof CommanderError)) throw error
  process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE
}
