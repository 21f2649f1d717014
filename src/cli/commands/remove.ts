import { type Command } from 'commander'
import { AS_IT_STANDS, removeUnlessHeld, termsOf } from '../../lock/index.js'
import { NotFound, UsageError } from '../../operations/index.js'
import type { CliContext, Options } from '../context.js'
import type { Found } from '../documents/find-documents.js'
import type { Workspace } from '../workspace.js'
import { examples, nameOf, onDocument, printDone, requireDone, withDocument } from './document-command.js'

export function registerRemove(program: Command, context: CliContext): void {
  const command = program
    .command('remove')
    .description(
      'delete a document outright: no handler runs, what it has made stays; mostly `set-state <id> Deleted` is what you want',
    )
    .argument('<id>', "the document's _id: plain text, ObjectId or Extended JSON")
    .option('--yes', 'yes, delete it')
    .option('--force', 'also while a replica holds it; what that replica does is then dropped')
    .action((id: string, options: Options) => {
      if (!options['yes']) throw new UsageError(`expected --yes to delete ${id} outright; nothing was deleted`)
      return onDocument(context, id, options, (found, workspace) => remove(context, options, found, workspace))
    })
  withDocument(command).addHelpText('after', examples('remove shop --yes', 'remove shop --yes --force'))
}

async function remove(context: CliContext, options: Options, found: Found, workspace: Workspace): Promise<void> {
  const { lifecycle, document, lockTimeoutMs } = found
  const { documents } = workspace.owner(lifecycle)
  const isRemoved = options['force']
    ? (await documents.deleteOne({ _id: document['_id'] })).deletedCount > 0
    : await removeUnlessHeld(documents, termsOf(lockTimeoutMs), document['_id'])
  if (!isRemoved) {
    const now = await documents.findOne({ _id: document['_id'] }, AS_IT_STANDS)
    if (!now) throw new NotFound(`${nameOf(found)} is gone meanwhile`)
    requireDone('held', { ...found, document: now }, 'removed without --force')
  }
  printDone(context, options, found, { removed: true }, `${nameOf(found)}: removed`)
}
