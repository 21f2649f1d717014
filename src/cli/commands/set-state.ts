import { type Command } from 'commander'
import type { LifecycleModel } from '../../phases/index.js'
import type { CliContext, Options } from '../context.js'
import type { Found } from '../documents/find-documents.js'
import { requireKnownState } from '../documents/known-state.js'
import { examples, nameOf, onDocument, printDone, requireDone, withDocument } from './document-command.js'

export function registerSetState(program: Command, context: CliContext): void {
  const command = program
    .command('set-state')
    .description('say what the owner of a document wants; its state rules do the rest')
    .argument('<id>', "the document's _id: plain text, ObjectId or Extended JSON")
    .argument('<state>', 'such as Running, Stopped or Deleted')
    .option('--force', 'also a state that no rule names')
    .action((id: string, state: string, options: Options) =>
      onDocument(context, id, options, async (found, workspace) => {
        if (!options['force']) requireKnownState(found.lifecycle.model, state)
        const verdict = await workspace.owner(found.lifecycle).setState(found.document['_id'], state)
        requireDone(verdict, found, `set to ${state}`)
        const done = `${nameOf(found)}: ${verdict === 'unchanged' ? 'wants' : 'now wants'} ${state}${verdict === 'unchanged' ? ' already' : ''}`
        printDone(context, options, found, { state, changed: verdict === 'done' }, `${done}${follows(found, state)}`)
      }),
    )
  withDocument(command).addHelpText(
    'after',
    examples('set-state shop Running', 'set-state shop Deleted --lifecycle api-gateway'),
  )
}

/** What comes of it. */
function follows({ lifecycle, document, condition }: Found, state: string): string {
  const model: LifecycleModel = lifecycle.model
  const rule = model.rules.find((one) => one.when === state && one.from.includes(document['phase']))
  if (!rule)
    return `; in ${typeof document['phase'] === 'string' ? document['phase'] : 'such a phase'} that changes nothing now`
  return condition.kind === 'held'
    ? `; it goes to ${rule.goTo} as soon as nobody holds it`
    : `; the next look moves it from ${String(document['phase'])} to ${rule.goTo}`
}
