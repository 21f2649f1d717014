import { userInfo } from 'node:os'
import { type Command } from 'commander'
import type { CliContext, Options } from '../context.js'
import { examples, nameOf, onDocument, printDone, requireDone, withDocument } from './document-command.js'

export function registerUnpark(program: Command, context: CliContext): void {
  const command = program
    .command('unpark')
    .description('give a parked document another go, with its attempts at 0')
    .argument('<id>', "the document's _id: plain text, ObjectId or Extended JSON")
    .option('--by <name>', 'who asks, for its history (default: your user name)')
    .option(
      '--force',
      "free it also from a lease that is ahead of the server's clock: by your word that its holder is gone",
    )
    .action((id: string, options: Options) =>
      onDocument(context, id, options, async (found, workspace) => {
        const by = (options['by'] as string | undefined) ?? userName()
        const force = options['force'] === true
        const owner = workspace.owner(found.lifecycle)
        requireDone(await owner.unpark(found.document['_id'], { by, force }), found, 'unparked')
        printDone(context, options, found, { by }, `${nameOf(found)}: unparked by ${by}; it is due now`)
      }),
    )
  withDocument(command).addHelpText(
    'after',
    examples('unpark shop', 'unpark shop --by ticket-4711', 'unpark shop --force'),
  )
}

/** A container's user may have no name. */
function userName(): string {
  try {
    return userInfo().username
  } catch {
    return 'cli'
  }
}
