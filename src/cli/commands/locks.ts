import type { Command } from 'commander'
import { type OperableLockProvider, openLockProvider } from '../../locks/index.js'
import {
  heldLock,
  holderOf,
  type LockState,
  listLocks,
  recorded,
  releaseLock,
  type System,
  UsageError,
} from '../../operations/index.js'
import type { Logger } from '../../phases/index.js'
import { byAndReason, byFrom } from '../by.js'
import { type CliContext, lookAtDatabase, type Options, onDatabase, settle } from '../context.js'
import { LOCK_SETTINGS } from '../setting-options.js'
import { printTable } from '../watch.js'
import { answerFrom, merged, print, shortTime, withDatabase } from './command.js'

export function registerLocks(program: Command, context: CliContext): void {
  const command = program
    .command('locks')
    .description('list the named locks that are held: by whom, since when, until when, and with which fence')
    .option('--all', 'also those that are free, if their record is kept')
    .action((options: LockOptions) =>
      onLocks(context, options, (locks) => list(context, options, locks), lookAtDatabase),
    )
  withLocks(command, [
    'locks',
    'locks --json --locks-url redis://localhost:6379',
    'locks release nightly-report',
    'locks migrate',
  ])
  const release = command
    .command('release')
    .description(
      "free a lock, whoever holds it; its holder's signal aborts within a second, and what ignores that may overlap with the next holder's work",
    )
    .argument('<name>', "the lock's name")
    .option('--yes', 'free it without asking first')
    .action((name: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      return onLocks(context, options, (locks, logger, system) => free(context, options, name, locks, logger, system))
    })
  withLocks(byAndReason(release), ['locks release nightly-report --yes --by alice'])
  const migrate = command
    .command('migrate')
    .description(
      "PostgreSQL and MySQL: create ShedLock's table and the column for the fence where they are missing; elsewhere there is nothing to do",
    )
    .action((_options: Options, sub: Command) => {
      const options = merged(sub)
      return onLocks(context, options, async (locks) => {
        await locks.migrate()
        print(context, options, { migrated: locks.kind }, `locks in ${locks.kind} have everything they need`)
      })
    })
  withLocks(migrate, [])
}

interface LockOptions extends Options {
  readonly all?: true
  readonly collection?: string
  readonly table?: string
  readonly prefix?: string
  readonly environment?: string
}

/** Adds the options that locate the locks, beyond the settings: values that a process may have set differently in its code. */
function withLocks(command: Command, examples: readonly string[]): void {
  command
    .option('--collection <name>', "MongoDB: the locks' collection (default: ShedLock's, shedLock)")
    .option('--table <name>', "PostgreSQL and MySQL: the locks' table (default: ShedLock's, shedlock)")
    .option('--prefix <text>', "Redis: the first part of a lock's key (default: ShedLock's, job-lock)")
    .option('--environment <text>', "Redis: the second part of a lock's key (default: ShedLock's, default)")
  withDatabase(command, examples, LOCK_SETTINGS)
}

/** Opens the locks that the processes with the same settings use. */
async function onLocks(
  context: CliContext,
  options: LockOptions,
  act: (locks: OperableLockProvider, logger: Logger, system?: System) => Promise<void>,
  on = onDatabase,
): Promise<void> {
  const { settings, logger } = await settle(context, options, 'warn')
  const { locks: provider, locksUrl: url, mode } = settings
  if (provider === 'memory' || (mode === 'single' && !url && provider !== 'mongodb'))
    throw new UsageError('locks in memory are visible only to their own process; there is nothing to see from outside')
  const { collection, table, prefix, environment } = options
  const where = { provider, mode, url, collection, table, prefix, environment, name: 'cli', env: {} }
  const use = async (locks: OperableLockProvider, system?: System) => {
    try {
      await act(locks, logger, system)
    } finally {
      await locks.close()
    }
  }
  const isElsewhere = provider !== undefined && provider !== 'auto' && provider !== 'mongodb'
  if (url || isElsewhere) return await use(await openLockProvider(where))
  return await on(context, options, async (system) => use(await openLockProvider(where, system.db), system))
}

async function list({ output }: CliContext, options: LockOptions, locks: OperableLockProvider): Promise<void> {
  const none = `no locks ${options.all ? '' : 'are held '}in ${locks.kind}`
  const columns = ['name', 'holder', 'since', 'until', 'fence']
  printTable(output, options, await listLocks(locks, options.all), { none, columns, row })
}

/** Asks, and frees the lock only if its holder is still the one that the operator was shown. */
async function free(
  context: CliContext,
  options: Options,
  name: string,
  locks: OperableLockProvider,
  logger: Logger,
  system?: System,
): Promise<void> {
  const seen = await heldLock(locks, name)
  const who = holderOf(seen)
  const question = `free '${name}', which ${who} holds until ${timeOf(seen.lockUntil)}?`
  if (!options.yes && !(await isMeant(context, question)))
    throw new UsageError(`expected yes, or --yes, to free '${name}'; nothing was freed`)
  const release = () => releaseLock(locks, seen)
  const before = { holder: who, until: seen.lockUntil, fence: seen.fence }
  const about = { action: 'locks release', target: `lock ${name}`, before }
  const released = system ? await recorded(system, about, release) : await release()
  const by = byFrom(options)
  logger.warn('a lock was freed by hand', { lock: name, heldBy: seen.lockedBy, fence: seen.fence, by })
  print(context, options, { released, by }, `${name}: freed; ${who} had held it since ${timeOf(seen.lockedAt)}`)
}

async function isMeant({ output, stdin }: CliContext, question: string): Promise<boolean> {
  output.problem(`${question} [y/N]`)
  return /^y(es)?$/i.test((await answerFrom(stdin)) ?? '')
}

const timeOf = (time: Date | null): string => time?.toISOString() ?? '-'

const row = (lock: LockState): string[] => [
  lock.name,
  lock.held ? holderOf(lock) : '-',
  shortTime(lock.lockedAt),
  lock.held ? shortTime(lock.lockUntil) : 'free',
  lock.fence === null ? '-' : String(lock.fence),
]
