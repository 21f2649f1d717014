import { type Command, InvalidArgumentError } from 'commander'
import { UsageError } from '../../operations/index.js'
import { type CliContext, type Options, settle } from '../context.js'
import { addSettingOptions, START_SETTINGS } from '../setting-options.js'
import { exampleText } from './command.js'

export function registerStart(program: Command, context: CliContext): void {
  const command = program
    .command('start')
    .description(
      'run one replica, or several with --workers, until SIGTERM or SIGINT (Ctrl-C); replicas share the work',
    )
    .option('--json', 'print where everything is as one JSON value on one line')
    .option('--ticks <n>', 'end in order after so many ticks, one a second: for a job or a test', ticksFrom)
    .action(async (options: Options & { readonly ticks?: number }) => {
      const { settings, logger } = await settle(context, options, 'info')
      const { ticks } = options
      if (ticks !== undefined && settings.workers > 1)
        throw new UsageError('expected --ticks or --workers, got both: ticks are those of one replica')
      // Nest and everything else that a replica needs are loaded for this command only.
      const { start } = await import('../start/start.js')
      await start({ ...context, settings, logger, json: options.json === true, ticks })
    })
  addSettingOptions(command, START_SETTINGS).addHelpText(
    'after',
    exampleText([
      'start --lifecycles ./lifecycles.js',
      'start --lifecycles ./lifecycles.js --http 8080 --log json',
      'start --lifecycles ./lifecycles.js --workers auto --http 8080',
      'start --lifecycles ./lifecycles.js --ticks 10',
      'start --lifecycles ./lifecycles.js --uri mongodb://db.example:27017/shop --name worker-1 --grace 30s',
    ]),
  )
}

function ticksFrom(text: string): number {
  const ticks = Number(text)
  if (/^\d{1,9}$/.test(text) && ticks >= 1) return ticks
  throw new InvalidArgumentError('expected a whole number from 1 to 999999999.')
}
