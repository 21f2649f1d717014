import type { Command } from 'commander'
import type { RegionStatus } from '../../kubernetes/index.js'
import { type CliContext, inWorkspace, type Options } from '../context.js'
import { examples, withDatabase } from './document-command.js'

export function registerRegions(program: Command, context: CliContext): void {
  const command = program
    .command('regions')
    .description('the Region documents: whether each can be used and its cluster answers, or why not')
    .option(
      '--kubeconfig <file>',
      "of the cluster whose Secrets hold the regions' kubeconfigs (default: as kubectl finds it)",
    )
    .action((options: Options) => regions(context, options))
  withDatabase(command).addHelpText('after', examples('regions', 'regions --json'))
}

async function regions(context: CliContext, options: Options): Promise<void> {
  const { Cluster, Regions } = await import('../../kubernetes/index.js')
  const file = options['kubeconfig'] as string | undefined
  const home = Cluster.of({ name: 'home', kubeconfig: file === undefined ? 'default' : { file } })
  await inWorkspace(context, options, async ({ connection }) => {
    const all = new Regions({ db: connection.db, home })
    try {
      print(context, options, await all.list())
    } finally {
      all.close()
      home.close()
    }
  })
}

function print(context: CliContext, options: Options, found: readonly RegionStatus[]): void {
  if (options['json'])
    context.output.json(found.map(({ name, trouble }) => ({ name, usable: trouble === undefined, trouble })))
  else if (found.length === 0) context.output.line('no regions: the collection Region is empty')
  else
    context.output.table(
      ['region', 'answers', 'why not'],
      found.map(({ name, trouble }) => [name, trouble === undefined ? 'yes' : 'no', trouble ?? '-']),
    )
}
