import { type Command } from 'commander'
import type { CliContext, Options } from '../context.js'
import { examples, nameOf, onDocument, printDone, requireDone, withDocument } from './document-command.js'

export function registerWake(program: Command, context: CliContext): void {
  const command = program
    .command('wake')
    .description("end a document's sleep: it is due at once")
    .argument('<id>', "the document's _id: plain text, ObjectId or Extended JSON")
    .action((id: string, options: Options) =>
      onDocument(context, id, options, async (found, workspace) => {
        requireDone(await workspace.owner(found.lifecycle).wake(found.document['_id']), found, 'woken')
        const slept = found.condition.kind === 'sleeping'
        const sentence = slept
          ? 'woken: it is due now'
          : `it did not sleep (${found.condition.kind}); nothing to wait for`
        printDone(context, options, found, { woken: slept }, `${nameOf(found)}: ${sentence}`)
      }),
    )
  withDocument(command).addHelpText('after', examples('wake shop', 'wake 66f0a1b2c3d4e5f60718293a'))
}
