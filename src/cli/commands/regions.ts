import type { Command } from 'commander'
import type { Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import type { RegionStatus } from '../../kubernetes/index.js'
import { NotFound, Refused } from '../../operations/index.js'
import { type CliContext, inWorkspace, type Options } from '../context.js'
import { type RegionUse, usesOfRegion } from '../documents/region-uses.js'
import type { Workspace } from '../workspace.js'
import { examples, withDatabase } from './document-command.js'
import { merged } from './schedules.js'

export function registerRegions(program: Command, context: CliContext): void {
  const command = program
    .command('regions')
    .description('the Region documents: whether each can be used and its cluster answers, or why not')
    .option(
      '--kubeconfig <file>',
      "of the cluster whose Secrets hold the regions' kubeconfigs (default: as kubectl finds it)",
    )
    .action((options: Options) => regions(context, options))
  withDatabase(command).addHelpText('after', examples('regions', 'regions --json', 'regions remove eu-1'))
  const remove = command
    .command('remove')
    .description('remove a Region document, unless documents name it or are placed in it')
    .argument('<name>', "the region's name")
    .option('--force', 'also then: they wait until there is a Region of that name again')
    .action((name: string, _options: Options, sub: Command) => removeRegion(context, merged(sub), name))
  withDatabase(remove).addHelpText('after', examples('regions remove eu-1', 'regions remove eu-1 --force --json'))
}

async function regions(context: CliContext, options: Options): Promise<void> {
  const { Cluster, Regions } = await import('../../kubernetes/index.js')
  const file = options['kubeconfig'] as string | undefined
  const home = Cluster.of({ name: 'home', kubeconfig: file === undefined ? 'default' : { file } })
  const use = async ({ connection }: Workspace) => {
    const all = new Regions({ db: connection.db, home })
    try {
      print(context, options, await all.list())
    } finally {
      all.close()
      home.close()
    }
  }
  await inWorkspace(context, options, use, 'reads')
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

async function removeRegion(context: CliContext, options: Options, name: string): Promise<void> {
  const { REGION_COLLECTION } = await import('../../kubernetes/index.js')
  await inWorkspace(context, options, async (workspace) => {
    const all = protocolCollection<Document & { _id: string }>(workspace.connection.db, REGION_COLLECTION)
    const region = await all.findOne({ _id: name })
    if (!region) throw new NotFound(`there is no Region ${name}; see: phaselock regions`)
    const uses = await usesOfRegion(workspace, name)
    if (uses.length > 0 && !options['force']) {
      throw new Refused(
        `Region ${name} was not removed: ${textOf(uses)}. Let them be deleted first (set-state <id> Deleted), ` +
          'or --force: then they wait until there is a Region of that name again',
      )
    }
    const { deletedCount } = await all.deleteOne({ _id: name })
    if (deletedCount === 0) throw new NotFound(`Region ${name} is gone meanwhile`)
    if (options['json']) context.output.json({ removed: region, inUse: uses })
    else {
      context.output.line(`Region ${name}: removed${uses.length > 0 ? `; now waiting: ${textOf(uses)}` : ''}`)
      context.output.line('to have it again, insert into Region:')
      context.output.json(region)
    }
  })
}

/** `Instance: 3 placed in it, 1 to be placed in it; ...` */
function textOf(uses: readonly RegionUse[]): string {
  return uses
    .map(({ collection, placed, named }) => {
      const parts = [placed > 0 ? `${placed} placed in it` : '', named > 0 ? `${named} that name it` : '']
      return `${collection}: ${parts.filter(Boolean).join(', ')}`
    })
    .join('; ')
}
