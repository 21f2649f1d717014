import { text } from 'node:stream/consumers'
import { type Command } from 'commander'
import {
  addDocument,
  idText,
  nameOf,
  removeDocument,
  setState,
  UsageError,
  unparkDocument,
  wakeDocument,
} from '../../operations/index.js'
import { type CliContext, type Options, onSystem } from '../context.js'
import { shellQuoted } from '../start/paste-lines.js'
import { byFrom, documentFrom, onDocument, print, refOf, withDatabase } from './command.js'

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

export function registerSetState(program: Command, context: CliContext): void {
  const command = onDocument(
    program,
    'set-state',
    "set the state that a document's owner wants; its state rules do the rest",
  )
    .argument('<state>', 'such as Running, Stopped or Deleted')
    .option('--force', 'even a state that no rule names')
    .action((id: string, state: string, options: Options) =>
      onSystem(context, options, async (system) => {
        const { phase, goesTo, held, ...done } = await setState(system, refOf(id, options), state, options)
        const wants = done.changed ? `now wants ${state}` : `already wants ${state}`
        const follows =
          goesTo === undefined
            ? `in ${phase} that changes nothing for now`
            : held
              ? `it goes to ${goesTo} as soon as nobody holds it`
              : `the next look moves it from ${phase} to ${goesTo}`
        print(context, options, done, `${nameOf(done)}: ${wants}; ${follows}`)
      }),
    )
  withDatabase(command, ['set-state shop Running', 'set-state shop Deleted --lifecycle api-gateway'])
}

export function registerWake(program: Command, context: CliContext): void {
  const command = onDocument(program, 'wake', "end a document's sleep, so that it is due at once").action(
    (id: string, options: Options) =>
      onSystem(context, options, async (system) => {
        const { was, ...done } = await wakeDocument(system, refOf(id, options))
        const sentence = done.woken ? 'woken: it is due now' : `it was not asleep (${was}); nothing has changed`
        print(context, options, done, `${nameOf(done)}: ${sentence}`)
      }),
  )
  withDatabase(command, ['wake shop', 'wake 66f0a1b2c3d4e5f60718293a'])
}

export function registerUnpark(program: Command, context: CliContext): void {
  const command = onDocument(program, 'unpark', 'give a parked document another try, with its attempts back at 0')
    .option('--by <name>', 'who is asking, for its history (default: your user name)')
    .option(
      '--force',
      "also free it from a lease that is ahead of the server's clock; only if you know that its holder is gone",
    )
    .action((id: string, options: Options) =>
      onSystem(context, options, async (system) => {
        const done = await unparkDocument(system, refOf(id, options), { ...options, by: byFrom(options) })
        print(context, options, done, `${nameOf(done)}: unparked by ${done.by}; it is due now`)
      }),
    )
  withDatabase(command, ['unpark shop', 'unpark shop --by ticket-4711', 'unpark shop --force'])
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
      if (!options.yes) throw new UsageError(`expected --yes to delete ${id} outright; nothing was deleted`)
      return onSystem(context, options, async (system) => {
        const done = await removeDocument(system, refOf(id, options), options)
        print(context, options, { ...done, removed: true }, `${nameOf(done)}: removed`)
      })
    })
  withDatabase(command, ['remove shop --yes', 'remove shop --yes --force'])
}
