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
    .action((id: string, options: Options) =>
      onDocument(context, id, options, async (found, workspace) => {
        const by = (options['by'] as string | undefined) ?? userName()
        requireDone(await workspace.owner(found.lifecycle).unpark(found.document['_id'], { by }), found, 'unparked')
        printDone(context, options, found, { by }, `${nameOf(found)}: unparked by ${by}; it is due now`)
      }),
    )
  withDocument(command).addHelpText('after', examples('unpark shop', 'unpark shop --by ticket-4711'))
}

/** A container's user may have no name. */
function userName(): string {
  try {
    return userInfo().username
  } catch {
    return 'cli'
  }
}
