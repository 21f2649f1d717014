import { createInterface } from 'node:readline'
import type { Command } from 'commander'
import { type LockRecord, type OperableLockProvider, openLockProvider } from '../../locks/index.js'
import { NotFound, Refused, UsageError } from '../../operations/index.js'
import type { Logger } from '../../phases/index.js'
import { type Access, type CliContext, inWorkspace, type Options, settle } from '../context.js'
import { addSettingOptions, LOCK_SETTINGS } from '../setting-options.js'
import type { Workspace } from '../workspace.js'
import { examples, withDatabase } from './document-command.js'
import { byFrom, byOption, merged } from './schedules.js'

export function registerLocks(program: Command, context: CliContext): void {
  const command = program
    .command('locks')
    .description('named locks that are held: who has each, since when, until when, with which fence')
    .option('--all', 'also those that are free, where their record is kept')
    .action((options: Options) => onLocks(context, options, (locks) => list(context, options, locks), 'reads'))
  withLocks(command).addHelpText(
    'after',
    examples(
      'locks',
      'locks --json --locks-url redis://localhost:6379',
      'locks release nightly-report',
      'locks migrate',
    ),
  )
  registerRelease(command, context)
  registerMigrate(command, context)
}

function registerRelease(locks: Command, context: CliContext): void {
  const command = locks
    .command('release')
    .description(
      "frees a lock whoever has it; its holder isn't stopped: what it does from then on may overlap with the next",
    )
    .argument('<name>', "the lock's name")
    .option('--yes', 'free it without asking')
    .action((name: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      return onLocks(context, options, (provider, logger) => release(context, options, name, provider, logger))
    })
  withLocks(byOption(command)).addHelpText('after', examples('locks release nightly-report --yes --by alice'))
}

function registerMigrate(locks: Command, context: CliContext): void {
  const command = locks
    .command('migrate')
    .description(
      "PostgreSQL: makes ShedLock's table where it is missing, and the column of the fence; else there is nothing to do",
    )
    .action((_options: Options, sub: Command) => {
      const options = merged(sub)
      return onLocks(context, options, async (provider) => {
        await provider.migrate()
        print(context, options, { migrated: provider.kind }, `locks in ${provider.kind} have all they need`)
      })
    })
  withLocks(command)
}

/** Where the locks are, beyond the settings: what a process may have set otherwise in its code. */
function withLocks(command: Command): Command {
  command
    .option('--collection <name>', "MongoDB: the locks' collection (default: ShedLock's own, shedLock)")
    .option('--table <name>', "PostgreSQL: the locks' table (default: ShedLock's own, shedlock)")
    .option('--prefix <text>', "Redis: the first part of a lock's key (default: ShedLock's own, job-lock)")
    .option('--environment <text>', "Redis: the second part of a lock's key (default: ShedLock's own, default)")
  return addSettingOptions(withDatabase(command), LOCK_SETTINGS)
}

/** Opens the locks that the processes with the same settings use. */
async function onLocks(
  context: CliContext,
  options: Options,
  act: (provider: OperableLockProvider, logger: Logger) => Promise<void>,
  access?: Access,
): Promise<void> {
  const { settings, logger } = await settle(context, options, 'warn')
  const { locks: provider, locksUrl: url, mode } = settings
  const [collection, table, prefix, environment] = ['collection', 'table', 'prefix', 'environment'].map(
    (key) => options[key] as string | undefined,
  )
  if (provider === 'memory' || (mode === 'single' && !url && provider !== 'mongodb'))
    throw new UsageError('locks in memory are seen by their own process only; there is nothing to look at from outside')
  const where = { provider, mode, url, collection, table, prefix, environment, name: 'cli', env: {} }
  const use = async (locks: OperableLockProvider) => {
    try {
      await act(locks, logger)
    } finally {
      await locks.close()
    }
  }
  if (url || provider === 'postgres' || provider === 'redis') return await use(await openLockProvider(where))
  const inDatabase = async ({ connection }: Workspace) => use(await openLockProvider(where, connection.db))
  return await inWorkspace(context, options, inDatabase, access)
}

async function list(context: CliContext, options: Options, provider: OperableLockProvider): Promise<void> {
  const records = await provider.list({ heldOnly: !options['all'] })
  if (options['json']) return context.output.json(records.map(shown))
  if (records.length === 0)
    return context.output.line(`no locks ${options['all'] ? '' : 'are held '}in ${provider.kind}`)
  context.output.table(['name', 'holder', 'since', 'until', 'fence'], records.map(row))
}

/** Asks, and frees it only if it is still held by whom the operator was shown. */
async function release(
  context: CliContext,
  options: Options,
  name: string,
  provider: OperableLockProvider,
  logger: Logger,
): Promise<void> {
  const record = await provider.find(name)
  if (!record?.held)
    throw new NotFound(`nobody holds the lock '${name}' in ${provider.kind}; see: phaselock locks --all`)
  const who = holderOf(record)
  if (
    !options['yes'] &&
    !(await isMeant(context, `free '${name}', which ${who} has until ${timeOf(record.lockUntil)}?`))
  )
    throw new UsageError(`expected yes, or --yes, to free '${name}'; nothing was freed`)
  const freed = await provider.release(name, record.lockedBy)
  if (!freed) throw new Refused(`'${name}' was not freed: ${who} has it no longer; see: phaselock locks`)
  const by = byFrom(options)
  logger.warn('a lock was freed by hand', { lock: name, heldBy: record.lockedBy, fence: record.fence, by })
  print(
    context,
    options,
    { released: shown(freed), by },
    `${name}: freed; ${who} had it since ${timeOf(record.lockedAt)}`,
  )
}

/** One line of standard input; its end means no. */
async function isMeant(context: CliContext, question: string): Promise<boolean> {
  context.output.problem(`${question} [y/N]`)
  const lines = createInterface({ input: context.stdin })
  try {
    for await (const line of lines) return /^\s*y(es)?\s*$/i.test(line)
    return false
  } finally {
    lines.close()
  }
}

const timeOf = (time: Date | undefined): string => time?.toISOString() ?? '-'
const holderOf = ({ lockedBy, released }: LockRecord): string =>
  `${lockedBy?.replace(/~(released|freed)$/, '') ?? '-'}${released ? ' (released)' : ''}`
const row = (record: LockRecord): string[] => [
  record.name,
  record.held ? holderOf(record) : '-',
  timeOf(record.lockedAt),
  record.held ? timeOf(record.lockUntil) : 'free',
  record.fence === undefined ? '-' : String(record.fence),
]

const shown = ({ name, lockedBy, lockedAt, lockUntil, fence, held, released }: LockRecord) => ({
  name,
  lockedBy: lockedBy ?? null,
  lockedAt: lockedAt ?? null,
  lockUntil: lockUntil ?? null,
  fence: fence ?? null,
  held,
  released,
})

function print(context: CliContext, options: Options, done: object, sentence: string): void {
  if (options['json']) context.output.json(done)
  else context.output.line(sentence)
}
