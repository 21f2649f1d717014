import type { Command } from 'commander'
import { listReplicas } from '../../operations/index.js'
import { fromNow } from '../../time/index.js'
import { type CliContext, lookAtSystem, type Options } from '../context.js'
import { watching } from '../watch.js'
import { watchOption, withDatabase } from './command.js'

export function registerReplicas(program: Command, context: CliContext): void {
  const command = program
    .command('replicas')
    .description('list the replicas that share the work: which lifecycles each runs, and when it was last seen')
    .action((options: Options) =>
      lookAtSystem(context, options, (system) =>
        watching(context, options, async (output) => {
          const { replicas, now } = await listReplicas(system)
          if (options.json) return output.json(replicas)
          if (replicas.length === 0)
            return output.line(`no replicas of ${system.models.map(({ name }) => name).join(', ')}`)
          const rows = replicas.map(({ name, lifecycles, seenAt, live }) => [
            name,
            lifecycles.join(', '),
            `${fromNow(seenAt, now)}${live ? '' : ' (gone?)'}`,
          ])
          output.table(['replica', 'lifecycles', 'seen'], rows)
        }),
      ),
    )
  withDatabase(watchOption(command), ['replicas', 'replicas --json', 'replicas --watch'])
}
