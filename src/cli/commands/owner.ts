import { text } from 'node:stream/consumers'
import { type Command, Option } from 'commander'
import { ON_DUPLICATE } from '../../lock/index.js'
import {
  type Added,
  addDocument,
  type Cancelled,
  cancelStep,
  type DocumentRef,
  idTyped,
  nameOf,
  OperationError,
  type PredictedAction,
  removeDocument,
  type System,
  setState,
  UsageError,
  unparkDocument,
  wakeDocument,
} from '../../operations/index.js'
import { shellQuoted } from '../../options/index.js'
import { durationMs } from '../../time/index.js'
import { byAndReason, byFrom, byOption, reasonOption } from '../by.js'
import { type CliContext, type Options, onSystem } from '../context.js'
import { reportError } from '../report-error.js'
import { documentFrom, durationFrom, onDocument, onDocuments, onOneMeant, print, withDatabase } from './command.js'
import { isDryRun, predictable, printPredictions, seenFrom } from './predicted.js'

export function registerAdd(program: Command, context: CliContext): void {
  const command = program
    .command('add')
    .description('insert a document; without a phase it starts in the first entry phase')
    .argument('<lifecycle>', 'the kind of document')
    .argument('[json]', 'its fields as JSON or Extended JSON; - reads them from standard input', '{}')
    .option('--force', 'even with a state that no rule names')
    .addOption(
      new Option(
        '--on-duplicate <what>',
        'what happens to the one that has its _id already (default: it is refused)',
      ).choices(ON_DUPLICATE),
    )
    .option('--due-in <duration>', 'with --on-duplicate: due so long after this, such as 5s, not at once', durationFrom)
    .action(async (lifecycle: string, json: string, options: Options) => {
      if (options['dueIn'] !== undefined && options['onDuplicate'] === undefined)
        throw new UsageError(`expected --on-duplicate beside --due-in: ${ON_DUPLICATE.join(', ')}`)
      const fields = documentFrom(json === '-' ? await text(context.stdin) : json)
      await onSystem(context, options, async (system) => {
        const added = await addDocument(system, lifecycle, fields, options)
        const module = options.lifecycles
        const own = module === undefined ? '' : ` --lifecycles ${shellQuoted(String(module))}`
        const see = `phaselock show ${idTyped(added._id)}${own}`
        print(context, options, added, `${nameOf(added)} ${addedSentence(added)}; see: ${see}`)
      })
    })
  withDatabase(byAndReason(command), [
    'add api-gateway',
    `add api-gateway '{"_id": "shop", "state": "Running"}'`,
    `add api-gateway '{"phase": "Creating"}' --json`,
    'add api-gateway - < gateway.json',
    `add api-gateway '{"_id": "shop", "state": "Running"}' --on-duplicate replaceWaiting`,
  ])
}

function addedSentence({ kind = 'inserted', phase }: Added): string {
  switch (kind) {
    case 'inserted':
      return `added in ${phase}`
    case 'ignored':
      return 'exists, and nothing has changed'
    case 'woken':
      return 'exists, and was woken: it is due now'
    case 'replaced':
      return 'exists, and has these fields now'
    case 'restarted':
      return `exists, and begins again in ${phase} with these fields`
    case 'queued':
      return 'exists, and a step of it runs: this is done at its end'
    case 'parked':
      return 'exists, and is parked: nothing has changed'
    case 'resting':
      return 'exists, and is at rest: nothing has changed'
  }
}

export function registerSetState(program: Command, context: CliContext): void {
  const command = onDocument(
    program,
    'set-state',
    "set the state that a document's owner wants; its state rules do the rest",
  )
    .argument('<state>', 'such as Running, Stopped or Deleted')
    .option('--force', 'even a state that no rule names')
    .action((id: string, state: string, options: Options) => {
      const force = options['force'] === true
      if (isDryRun(options)) return printPredictions(context, [id], options, { action: 'set-state', state, force })
      return onSystem(context, options, async (system) => {
        const { phase, goesTo, held, ...done } = await onOneMeant(context, id, options, (ref) =>
          setState(system, ref, state, options),
        )
        const wants = done.changed ? `now wants ${state}` : `already wants ${state}`
        const follows =
          goesTo === undefined
            ? `in ${phase} that changes nothing for now`
            : held
              ? `it goes to ${goesTo} as soon as nobody holds it`
              : `the next look moves it from ${phase} to ${goesTo}`
        print(context, options, done, `${nameOf(done)}: ${wants}; ${follows}`)
      })
    })
  withDatabase(predictable(byAndReason(command)), [
    'set-state shop Running',
    'set-state shop Deleted --lifecycle api-gateway',
    'set-state shop Deleted --dry-run',
  ])
}

export function registerWake(program: Command, context: CliContext): void {
  const command = onDocuments(program, 'wake', 'end the sleep of documents, so that they are due at once').action(
    (ids: string[], options: Options) =>
      eachMeant(context, ids, options, { action: 'wake' }, async (system, ref) => {
        const { was, ...done } = await wakeDocument(system, ref, seenFrom(options, ids))
        const sentence = done.woken ? 'woken: it is due now' : `it was not asleep (${was}); nothing has changed`
        return [done, `${nameOf(done)}: ${sentence}`]
      }),
  )
  withDatabase(predictable(byAndReason(command)), [
    'wake shop',
    'wake shop mill 66f0a1b2c3d4e5f60718293a --lifecycle api-gateway',
    'wake shop --dry-run',
  ])
}

export function registerUnpark(program: Command, context: CliContext): void {
  const command = onDocuments(program, 'unpark', 'give parked documents another try, with their attempts back at 0')
    .option(
      '--force',
      "also free them from a lease that is ahead of the server's clock; only if you know that its holder is gone",
    )
    .action((ids: string[], options: Options) => {
      const { force } = options
      return eachMeant(context, ids, options, { action: 'unpark', by: byFrom(options), force }, async (system, ref) => {
        const how = { force, by: byFrom(options), ...seenFrom(options, ids) }
        const done = await unparkDocument(system, ref, how)
        return [done, `${nameOf(done)}: unparked by ${done.by}; ${done.unclaimed ?? 'it is due now'}`]
      })
    })
  withDatabase(predictable(byAndReason(command)), [
    'unpark shop',
    'unpark shop mill --by ticket-4711',
    'unpark shop --force',
    'unpark shop --dry-run',
  ])
}

export function registerCancel(program: Command, context: CliContext): void {
  const cancel = onDocuments(
    program,
    'cancel',
    'stop the steps of documents that run now: their signals abort, then they are parked, with by whom and why',
  )
  const command = reasonOption(cancel, 'why, for their history')
    .option('--wait <duration>', 'how long to wait for a handler to end', durationFrom, '5s')
    .action((ids: string[], options: Options) => {
      const { reason, wait } = options as { reason?: string; wait: string }
      const asked = { by: byFrom(options), reason }
      return eachMeant(context, ids, options, { action: 'cancel', ...asked }, async (system, ref) => {
        const how = { ...asked, waitMs: durationMs(wait), ...seenFrom(options, ids) }
        const done = await cancelStep(system, ref, how)
        const { now, ...said } = done
        const { condition, document } = now ?? {}
        return [{ ...said, condition, phase: document?.['phase'] }, `${nameOf(done)}: ${cancelledSentence(done, wait)}`]
      })
    })
  withDatabase(predictable(byOption(command)), ['cancel shop --reason stuck', 'cancel shop mill --by ana --wait 30s'])
}

function cancelledSentence({ ended, holder, now }: Cancelled, wait: string): string {
  if (holder === null)
    return ended
      ? `what it has started has stopped. ${now ? now.explanation : 'The run is gone.'}`
      : `what it has started was asked to stop, and has not within ${wait}: the run ends when it has`
  if (!ended)
    return `its step on ${holder} was asked to stop, and has not ended within ${wait}: it keeps the document until it does`
  return `its step on ${holder} has ended. ${now ? now.explanation : 'The document is gone.'}`
}

/**
 * Acts on each of the documents, one after another. The refusal of one doesn't stop the others; it is printed, and the
 * command fails with the last refusal.
 */
async function eachMeant(
  context: CliContext,
  ids: readonly string[],
  options: Options,
  action: PredictedAction,
  act: (system: System, ref: DocumentRef) => Promise<readonly [done: object, sentence: string]>,
): Promise<void> {
  seenFrom(options, ids)
  if (isDryRun(options)) return printPredictions(context, ids, options, action)
  await onSystem(context, options, async (system) => {
    const all: object[] = []
    const refused: unknown[] = []
    for (const id of ids) {
      try {
        const [done, sentence] = await onOneMeant(context, id, options, (ref) => act(system, ref))
        all.push(done)
        if (!options.json) context.output.line(sentence)
      } catch (error) {
        if (!(error instanceof OperationError)) throw error
        refused.push(error)
      }
    }
    // With one id, print its value alone.
    if (options.json && all.length > 0) context.output.json(ids.length === 1 ? all[0] : all)
    for (const error of refused.slice(0, -1)) reportError(error, context.output, options.json === true, false)
    if (refused.length > 0) throw refused.at(-1)
  })
}

export function registerRemove(program: Command, context: CliContext): void {
  const command = onDocument(
    program,
    'remove',
    'delete a document outright: no handler runs, what it has made stays; usually you want `set-state <id> Deleted`',
  )
    .option('--yes', 'confirm that you want it deleted')
    .option('--force', "even while a replica holds it; that replica's outcome is then dropped")
    .action((id: string, options: Options) => {
      const { force } = options
      if (isDryRun(options))
        return printPredictions(context, [id], options, { action: 'remove', by: byFrom(options), force })
      if (!options.yes) throw new UsageError(`expected --yes to delete ${id} outright; nothing was deleted`)
      return onSystem(context, options, async (system) => {
        const done = await onOneMeant(context, id, options, (ref) => removeDocument(system, ref, options))
        const rest = done.deleted === undefined ? '' : '; it is deleted when its callbacks have been told'
        print(context, options, { ...done, removed: true }, `${nameOf(done)}: removed${rest}`)
      })
    })
  withDatabase(predictable(byAndReason(command)), [
    'remove shop --yes',
    'remove shop --yes --force',
    'remove shop --dry-run',
  ])
}
