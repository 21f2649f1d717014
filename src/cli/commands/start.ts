import type { Command } from 'commander'
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
    .action(async (options: Options) => {
      const { settings, logger } = await settle(context, options, 'info')
      // Nest and all that a replica needs are loaded for this command only.
      const { start } = await import('../start/start.js')
      await start({ ...context, settings, logger, json: options.json === true })
    })
  addSettingOptions(command, START_SETTINGS).addHelpText(
    'after',
    exampleText([
      'start',
      'start --http 8080 --log json',
      'start --workers auto --http 8080',
      'start --lifecycles ./my-lifecycles.js',
      'start --uri mongodb://db.example:27017/shop --name worker-1 --grace 30s',
    ]),
  )
}
