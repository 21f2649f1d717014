import { text } from 'node:stream/consumers'
import { type Command } from 'commander'
import { addDocument, idText, nameOf } from '../../operations/index.js'
import { type CliContext, type Options, onSystem } from '../context.js'
import { shellQuoted } from '../start/paste-lines.js'
import { documentFrom, print, withDatabase } from './command.js'

export function registerAdd(program: Command, context: CliContext): void {
  const command = program
    .command('add')
    .description('insert a document; without a phase it starts in the first entry phase')
    .argument('<lifecycle>', 'the kind of document')
    .argument('[json]', 'its fields as JSON or Extended JSON; - reads them from standard input', '{}')
    .option('--force', 'even with a state that no rule names')
    .action(async (lifecycle: string, json: string, options: Options) => {
      const fields = documentFrom(json === '-' ? await text(context.stdin) : json)
      await onSystem(context, options, async (system) => {
        const added = await addDocument(system, lifecycle, fields, options)
        const module = options.lifecycles
        const own = module === undefined ? '' : ` --lifecycles ${shellQuoted(String(module))}`
        const see = `phaselock show ${idText(added._id)}${own}`
        print(context, options, added, `${nameOf(added)} added in ${added.phase}; see: ${see}`)
      })
    })
  withDatabase(command, [
    'add api-gateway',
    `add api-gateway '{"_id": "shop", "state": "Running"}'`,
    `add api-gateway '{"phase": "Creating"}' --json`,
    'add api-gateway - < gateway.json',
  ])
}
