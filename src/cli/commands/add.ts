import { text } from 'node:stream/consumers'
import { type Command } from 'commander'
import type { Document } from 'mongodb'
import { idText, Refused, UsageError } from '../../operations/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { type CliContext, inWorkspace, type Options } from '../context.js'
import { documentFrom } from '../documents/json-argument.js'
import { requireKnownState } from '../documents/known-state.js'
import { shellQuoted } from '../start/paste-lines.js'
import { examples, withDatabase } from './document-command.js'

export function registerAdd(program: Command, context: CliContext): void {
  const command = program
    .command('add')
    .description('insert a document; without a phase it starts in the first entry phase')
    .argument('<lifecycle>', 'which kind of document')
    .argument('[json]', 'its fields as JSON or Extended JSON; - reads them from standard input', '{}')
    .option('--force', 'also with a state that no rule names')
    .action((lifecycle: string, json: string, options: Options) => add(context, lifecycle, json, options))
  withDatabase(command).addHelpText(
    'after',
    examples(
      'add api-gateway',
      `add api-gateway '{"_id": "shop", "state": "Running"}'`,
      `add api-gateway '{"phase": "Creating"}' --json`,
      'add api-gateway - < gateway.json',
    ),
  )
}

async function add(context: CliContext, name: string, json: string, options: Options): Promise<void> {
  const given = documentFrom(json === '-' ? await text(context.stdin) : json)
  await inWorkspace(context, options, async (workspace) => {
    const lifecycle = workspace.lifecycle(name)
    const { model } = lifecycle
    const document: Document = { phase: model.entries[0], ...given }
    requireOwnFields(model, document)
    if ('state' in document && !options['force']) requireKnownState(model, document['state'])
    const id = await insert(() => workspace.owner(lifecycle).insert(document), model, document)
    if (options['json']) context.output.json({ lifecycle: name, _id: id, phase: document['phase'] })
    else {
      const own =
        options['lifecycles'] === undefined ? '' : ` --lifecycles ${shellQuoted(String(options['lifecycles']))}`
      context.output.line(
        `${name} ${idText(id)} added in ${document['phase']}; see: phaselock show ${idText(id)}${own}`,
      )
    }
  })
}

function requireOwnFields(model: LifecycleModel, document: Document): void {
  const reserved = ['lockedBy', 'fence', model.settings.progress].filter((field) => field in document)
  if (reserved.length > 0) {
    throw new UsageError(
      `expected the owner's own fields, got ${reserved.join(', ')}: Phaselock writes these; leave them out`,
    )
  }
  const { lockedAt = null } = document
  if (lockedAt !== null && !(lockedAt instanceof Date)) {
    throw new UsageError(
      `expected in lockedAt when it is due, a date such as {"$date": "2026-01-01T10:00:00Z"}, got ${JSON.stringify(lockedAt)}; leave it out for at once`,
    )
  }
}

async function insert(run: () => Promise<unknown>, model: LifecycleModel, document: Document): Promise<unknown> {
  try {
    return await run()
  } catch (error) {
    const { code, message } = error as { code?: number; message?: string }
    if (code !== 11_000) throw error
    throw new Refused(
      `${model.name} ${idText(document['_id'])} was not added: it is there already, or a unique field is taken (${message})`,
    )
  }
}
