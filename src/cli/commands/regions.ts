import type { Command } from 'commander'
import { listRegions, recorded, removeRegion, usesText } from '../../operations/index.js'
import { byAndReason } from '../by.js'
import { type CliContext, lookAtDatabase, type Options, onDatabase } from '../context.js'
import { printTable } from '../watch.js'
import { merged, withDatabase } from './command.js'

export function registerRegions(program: Command, context: CliContext): void {
  const { output } = context
  const command = program
    .command('regions')
    .description('list the Region documents: whether each is usable and its cluster answers, and if not, why')
    .option(
      '--kubeconfig <file>',
      "for the cluster whose Secrets hold the regions' kubeconfigs (default: as kubectl finds it)",
    )
    .action((options: Options) =>
      lookAtDatabase(context, options, async (system) => {
        printTable(output, options, await listRegions(system, options), {
          none: 'no regions: the collection Region is empty',
          columns: ['region', 'answers', 'why not'],
          row: ({ name, usable, trouble }) => [name, usable ? 'yes' : 'no', trouble ?? '-'],
        })
      }),
    )
  withDatabase(command, ['regions', 'regions --json', 'regions remove eu-1'])
  const remove = command
    .command('remove')
    .description('remove a Region document, unless documents name it or are placed in it')
    .argument('<name>', "the region's name")
    .option('--force', 'even then: those documents wait until there is a Region of that name again')
    .action((name: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      return onDatabase(context, options, async (system) => {
        const act = () => removeRegion(system, name, options)
        const about = { action: 'regions remove', target: `Region ${name}` }
        const done = await recorded(system, about, act, ({ removed }) => ({ outcome: 'done', after: { removed } }))
        if (options.json) return output.json(done)
        output.line(`Region ${name}: removed${done.inUse.length > 0 ? `; now waiting: ${usesText(done.inUse)}` : ''}`)
        output.line('to restore it, insert this into Region:')
        output.json(done.removed)
      })
    })
  withDatabase(byAndReason(remove), ['regions remove eu-1', 'regions remove eu-1 --force --json'])
}
