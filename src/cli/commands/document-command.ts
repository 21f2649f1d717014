import type { Command } from 'commander'
import { STEP_SLACK_MS } from '../../lock/index.js'
import { idText, NotFound, Refused } from '../../operations/index.js'
import type { OwnerVerdict } from '../../phases/index.js'
import { type Access, type CliContext, inWorkspace, type Options } from '../context.js'
import { type Found, type FoundOne, findDocument } from '../documents/find-documents.js'
import { addSettingOptions, DATABASE_SETTINGS } from '../setting-options.js'
import type { Workspace } from '../workspace.js'

/** Options that every command on the database has. */
export function withDatabase(command: Command): Command {
  command.option('--json', 'print one JSON value (relaxed Extended JSON) on one line')
  return addSettingOptions(command, DATABASE_SETTINGS)
}

/** Options of a command on one document, whose first argument is `<id>`. */
export function withDocument(command: Command): Command {
  return withDatabase(
    command.option('--lifecycle <name>', 'look in this lifecycle only (default: the first of all that has the _id)'),
  )
}

/** Examples below a command's help. */
export function examples(...lines: string[]): string {
  return `\nExamples:\n${lines.map((line) => `  $ phaselock ${line}`).join('\n')}`
}

/** Finds the document of a command and does something with it. */
export function onDocument(
  context: CliContext,
  id: string,
  options: Options,
  act: (found: FoundOne, workspace: Workspace) => Promise<void>,
  access?: Access,
): Promise<void> {
  const use = async (workspace: Workspace) =>
    act(await findDocument(workspace, id, options['lifecycle'] as string | undefined), workspace)
  return inWorkspace(context, options, use, access)
}

/** How a document is called in messages: `api-gateway 66f0...`. */
export const nameOf = ({ lifecycle, document }: Found) => `${lifecycle.model.name} ${idText(document['_id'])}`

/** Prints what was done, for people or for machines. */
export function printDone(context: CliContext, options: Options, found: Found, done: object, sentence: string): void {
  const { lifecycle, document } = found
  if (options['json']) context.output.json({ lifecycle: lifecycle.model.name, _id: document['_id'], ...done })
  else context.output.line(sentence)
}

/**
 * What an owner's verdict means for a command.
 * @throws NotFound, Refused with what to do instead
 */
export function requireDone(verdict: OwnerVerdict, found: Found, action: string): void {
  const name = nameOf(found)
  switch (verdict) {
    case 'done':
    case 'unchanged':
      return
    case 'notFound':
      throw new NotFound(`${name} is gone meanwhile`)
    case 'held': {
      const { lockedBy } = found.document
      const holder = `${typeof lockedBy === 'string' ? lockedBy : 'somebody'} holds it`
      const id = idText(found.document['_id'])
      const why = isAhead(found)
        ? `${holder} by a lease that is ahead of the server's clock, which has stepped back; where that one is gone: phaselock unpark ${id} --force; where it may not be: phaselock check --repair`
        : `${holder}, so it is being worked on; see: phaselock show ${id}`
      throw new Refused(`${name} can't be ${action}: ${why}`)
    }
    case 'parked':
      throw new Refused(`${name} can't be ${action}: it is parked; ${parkedAdvice(found)}`)
    case 'notParked':
      throw new Refused(`${name} can't be ${action}: it isn't parked; to end a sleep use: phaselock wake`)
  }
}

const isAhead = ({ document, now }: Found): boolean =>
  document['lockedAt'] instanceof Date && document['lockedAt'].getTime() > now.getTime() + STEP_SLACK_MS

function parkedAdvice({ condition, document, lifecycle }: Found): string {
  if (condition.kind === 'broken')
    return `its '${condition.field}' is ${condition.found}: mend that first, then set lockedAt to null`
  const { progress } = lifecycle.model.settings
  if (document[progress] == null) return 'nothing of Phaselock is in it; set its lockedAt to null'
  return 'to give it another go use: phaselock unpark'
}
