import type { Command } from 'commander'
import { idText, listUndelivered, nameOf, retryCallbacks } from '../../operations/index.js'
import { fromNow } from '../../time/index.js'
import { byAndReason } from '../by.js'
import { type CliContext, lookAtSystem, type Options, onSystem } from '../context.js'
import { printTable, watchingSystem } from '../watch.js'
import { merged, onDocument, onOneMeant, print, watchOption, withDatabase } from './command.js'

export function registerCallbacks(program: Command, context: CliContext): void {
  const command = program
    .command('callbacks')
    .description(
      'list the documents whose callbacks have not been told of all yet: what failed, why, and when it is tried next',
    )
    .argument('[lifecycle]', 'the kind of document (default: all)')
    .action((lifecycle: string | undefined, options: Options) =>
      watchingSystem(context, lookAtSystem, options, async (system, output) => {
        const { undelivered, now } = await listUndelivered(system, lifecycle)
        printTable(output, options, undelivered, {
          none: 'all callbacks have been told',
          columns: ['lifecycle', 'id', 'callback', 'from -> to', 'since', 'open', 'tries', 'next', 'error'],
          row: (one) => [
            one.lifecycle,
            idText(one._id),
            one.callback,
            one.from === one.to ? one.from : `${one.from} -> ${one.to}`,
            fromNow(one.at, now),
            `${one.open}`,
            `${one.tries}`,
            one.dueAt ? fromNow(one.dueAt, now) : 'waits for a person',
            one.error?.split('\n')[0]?.slice(0, 100) ?? '-',
          ],
        })
      }),
    )
  withDatabase(watchOption(command), ['callbacks', 'callbacks order --watch', 'callbacks retry order-4711'])
  registerRetry(command, context)
}

function registerRetry(callbacks: Command, context: CliContext): void {
  const description =
    "try the next call of a document's callbacks again now; with --skip, give that one call up for good"
  const command = onDocument(callbacks, 'retry', description)
    .option('--skip', 'give the call up: the one after it is next')
    .action(async (id: string, _options: Options, sub: Command) => {
      const options = merged(sub) as Options & { skip?: true }
      const done = await onSystem(context, options, (system) =>
        onOneMeant(context, id, options, (ref) => retryCallbacks(system, ref, { skip: options.skip })),
      )
      const what = done.skipped ? 'is given up' : 'is called again'
      print(context, options, done, `${nameOf(done)}: ${done.callback} (event ${done.seq}) ${what}`)
    })
  withDatabase(byAndReason(command), [
    'callbacks retry order-4711',
    'callbacks retry order-4711 --skip --reason "told by phone"',
  ])
}
