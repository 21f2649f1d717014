import type { Command } from 'commander'
import { isOver, Refused, startRun, UsageError, waitForRun } from '../../operations/index.js'
import type { Json } from '../../schedules/index.js'
import { type CliContext, type Options } from '../context.js'
import { byFrom, byOption, print } from './command.js'
import { endText, onSchedules, withSchedules } from './schedules.js'

/** A run that stays queued for longer is reported. */
const TOLD_AFTER_MS = 5_000

interface RunOptions extends Options {
  readonly args?: string
  readonly wait?: true
}

export function registerRun(program: Command, context: CliContext): void {
  const command = program
    .command('run')
    .description('run a schedule once, now, on a replica that knows its task, under the same lock as its other runs')
    .argument('<schedule>', 'its id')
    .option('--args <json>', "instead of the schedule's own")
    .option('--wait', 'wait until the run is over; exit code 4 unless it is Completed')
    .action((id: string, options: RunOptions) => run(context, id, options))
  withSchedules(byOption(command), ['run repo_sync_42', 'run repo_sync_42 --args \'{"full":true}\' --wait'])
}

async function run(context: CliContext, id: string, options: RunOptions): Promise<void> {
  const args = options.args === undefined ? undefined : argsFrom(options.args)
  await onSchedules(context, options, async (system) => {
    const runId = await startRun(system, id, { by: byFrom(options), args })
    if (!options.wait) return print(context, options, { _id: runId }, `${runId} is queued; see: phaselock runs ${id}`)
    let found = await waitForRun(system, runId, TOLD_AFTER_MS)
    if (found.phase === 'Queued')
      context.output.problem(
        `${runId} is still waiting for a replica that knows the task '${found.task}'; is one running?`,
      )
    while (!isOver(found)) found = await waitForRun(system, runId, TOLD_AFTER_MS)
    print(context, options, found, `${runId} ${endText(found)}`)
    if (found.phase !== 'Completed') throw new Refused(`expected ${runId} to be Completed, it is ${found.phase}`)
  })
}

function argsFrom(text: string): Json {
  try {
    return JSON.parse(text) as Json
  } catch (error) {
    throw new UsageError(
      `--args: expected JSON, got ${text} (${(error as Error).message}); in a shell, quote it with '...'`,
    )
  }
}
