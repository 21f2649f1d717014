import { userInfo } from 'node:os'
import { type Command, Option } from 'commander'
import type { Settings } from '../config/index.js'
import { type DatabaseConnection, missingRights } from '../database/index.js'
import { UsageError } from '../operations/index.js'
import { renamedNow } from '../options/index.js'
import { AUDIT_COLLECTION, type AuditOptions, type Logger } from '../phases/index.js'
import { addSettingOptions } from './setting-options.js'

const LONGEST_BY = 200
const LONGEST_REASON = 500

/** Adds `--by`, the author for the record. */
export function byOption(command: Command): Command {
  command.option('--by <name>', 'who is doing this, for the record (default: your user name)')
  return addSettingOptions(command, ['auditFor'])
}

/** Adds `--by` and `--reason`, the author and the reason for the audit. */
export const byAndReason = (command: Command): Command => reasonOption(byOption(command), 'why, for the audit')

/** Adds `--reason`; its former names are refused. @param most the number of characters that are kept */
export function reasonOption(command: Command, about: string, most = LONGEST_REASON): Command {
  const checked = (text: string) => {
    if (text.length <= most) return text
    throw new UsageError(`--reason: expected at most ${most} characters, got ${text.length}`)
  }
  command.option('--reason <text>', about, checked)
  for (const former of ['--why', '--comment'])
    command.addOption(formerOption(`${former} <text>`, renamedNow(former, '--reason')))
  return command
}

/** An option that only says what has replaced it; help and completion don't show it. */
export const formerOption = (flags: string, problem: string): Option =>
  new Option(flags).hideHelp().argParser(() => {
    throw new UsageError(problem)
  })

export function byFrom({ by }: { readonly by?: string }): string {
  if (by !== undefined) return by
  try {
    return userInfo().username
  } catch {
    return 'cli' // a container's user may have no name
  }
}

/**
 * The author of a command and the reason, for its entries in the audit; undefined if its user lacks the rights for that, which is logged.
 * @throws UsageError
 */
export async function auditOf(
  options: { readonly by?: string; readonly reason?: string },
  { auditFor }: Settings,
  { db }: DatabaseConnection,
  logger: Logger,
): Promise<AuditOptions | undefined> {
  const by = byFrom(options)
  if (by.trim() === '' || by.length > LONGEST_BY)
    throw new UsageError(
      `--by: expected a name of 1 to ${LONGEST_BY} characters, got ${by.trim() === '' ? 'none' : by.length}`,
    )
  const [missing] = await missingRights(db, [{ collection: AUDIT_COLLECTION, actions: ['find', 'insert', 'update'] }])
  if (missing) logger.warn(`no entry in the audit is kept of this command: ${missing.message}`)
  return missing ? undefined : { by, reason: options.reason?.slice(0, LONGEST_REASON), keepFor: `${auditFor}ms` }
}
