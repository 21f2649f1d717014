import type { Command } from 'commander'
import { COUNT_LIMIT, forgetLifecycle, listRegistrations, type Registration } from '../../operations/index.js'
import { fromNow } from '../../time/index.js'
import { byAndReason } from '../by.js'
import { type CliContext, lookAtDatabase, type Options, onDatabase } from '../context.js'
import { printTable, watchingSystem } from '../watch.js'
import { merged, print, watchOption, withDatabase } from './command.js'

export function registerLifecycles(program: Command, context: CliContext): void {
  const command = program
    .command('lifecycles')
    .description(
      'list the lifecycles that replicas have registered in the database: who runs them, and how many documents they have',
    )
    .action((options: Options) =>
      watchingSystem(context, lookAtDatabase, options, async (system, output) => {
        const { registrations, now } = await listRegistrations(system)
        printTable(output, options, registrations, {
          none: 'no lifecycles: a replica registers its own when it starts',
          columns: ['lifecycle', 'collection', 'phases', 'documents', 'replicas', 'looked after'],
          row: (one) => row(one, now),
        })
      }),
    )
  withDatabase(watchOption(command), ['lifecycles', 'lifecycles --json', 'lifecycles forget api-gateway'])
  const forget = command
    .command('forget')
    .description('take a retired lifecycle out of the database, unless documents or live replicas have it')
    .argument('<name>', "the lifecycle's name")
    .action(async (name: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      const forgotten = await onDatabase(context, options, (system) => forgetLifecycle(system, name))
      print(context, options, forgotten, `lifecycle ${name}: forgotten; a replica that runs it registers it again`)
    })
  withDatabase(byAndReason(forget), [
    'lifecycles forget api-gateway',
    'lifecycles forget api-gateway --reason "started by mistake"',
  ])
}

const row = ({ lifecycle, collection, phases, documents, replicas, handledAt }: Registration, now: Date): string[] => [
  ...[lifecycle, collection ?? '-', phases.join(', ') || '-'],
  ...[
    `${documents}${documents >= COUNT_LIMIT ? '+' : ''}`,
    replicas.join(', ') || '-',
    handledAt ? fromNow(handledAt, now) : 'never',
  ],
]
