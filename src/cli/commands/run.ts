import type { Command } from 'commander'
import { Refused, UsageError } from '../../operations/index.js'
import type { Json, Schedules, StoredRun } from '../../schedules/index.js'
import { formatMs, sleep } from '../../time/index.js'
import type { CliContext, Options } from '../context.js'
import { examples } from './document-command.js'
import { byFrom, byOption, onSchedules, withSchedules } from './schedules.js'

const LOOK_EVERY_MS = 200
const LOOKS_UNTIL_TOLD = 25

export function registerRun(program: Command, context: CliContext): void {
  const command = program
    .command('run')
    .description(
      'has a schedule run once, now, by a replica that knows its task; under the same lock as its other runs',
    )
    .argument('<schedule>', 'its id')
    .option('--args <json>', "instead of the schedule's own")
    .option('--wait', 'until it is over; exit code 4 unless it was Completed')
    .action((id: string, options: Options) => run(context, id, options))
  withSchedules(byOption(command)).addHelpText(
    'after',
    examples('run repo_sync_42', 'run repo_sync_42 --args \'{"full":true}\' --wait'),
  )
}

async function run(context: CliContext, id: string, options: Options): Promise<void> {
  const args = options['args'] === undefined ? undefined : argsFrom(options['args'] as string)
  await onSchedules(context, options, async (schedules) => {
    const runId = await schedules.run(id, { by: byFrom(options), args })
    if (!options['wait']) {
      if (options['json']) context.output.json({ _id: runId })
      else context.output.line(`${runId} is queued; see: phaselock runs ${id}`)
      return
    }
    const over = await ended(context, schedules, runId)
    if (options['json']) context.output.json(over)
    else context.output.line(`${runId} ${overText(over)}`)
    if (over.phase !== 'Completed') throw new Refused(`expected ${runId} to be Completed, it is ${over.phase}`)
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

async function ended(context: CliContext, schedules: Schedules, runId: string): Promise<StoredRun> {
  for (let looks = 0; ; looks += 1) {
    const found = await schedules.findRun(runId)
    if (!found) throw new Refused(`${runId} is gone: somebody has deleted it`)
    if (found.phase !== 'Queued' && found.phase !== 'Running') return found
    if (looks === LOOKS_UNTIL_TOLD && found.phase === 'Queued')
      context.output.problem(`${runId} still waits for a replica that knows the task '${found.task}'; is there one?`)
    await sleep(LOOK_EVERY_MS)
  }
}

/** `Completed in 1.2 s`, `Skipped: overlap: ...`. */
export function overText({ phase, durationMs, reason, error }: StoredRun): string {
  const why = error?.message ?? reason
  return `${phase}${durationMs === undefined ? '' : ` in ${formatMs(durationMs)}`}${why ? `: ${why.split('\n')[0]}` : ''}`
}
