import { userInfo } from 'node:os'
import type { Command } from 'commander'
import type { Settings } from '../config/index.js'
import { type DatabaseConnection, missingRights } from '../database/index.js'
import { UsageError } from '../operations/index.js'
import { AUDIT_COLLECTION, type AuditOptions, type Logger } from '../phases/index.js'
import { addSettingOptions } from './setting-options.js'

/** Adds `--by`, the author for the record. */
export function byOption(command: Command): Command {
  command.option('--by <name>', 'who is doing this, for the record (default: your user name)')
  return addSettingOptions(command, ['auditFor'])
}

/** Adds `--by` and `--why`, the author and the reason for the audit. */
export const byAndWhy = (command: Command): Command => byOption(command).option('--why <text>', 'why, for the audit')

export function byFrom({ by }: { readonly by?: string }): string {
  if (by !== undefined) return by
  try {
    return userInfo().username
  } catch {
    return 'cli' // a container's user may have no name
  }
}

const LONGEST_BY = 200
const LONGEST_WHY = 500

/**
 * The author of a command and the reason, for its entries in the audit; undefined if its user lacks the rights for that, which is logged.
 * @throws UsageError
 */
export async function auditOf(
  options: { readonly by?: string; readonly why?: string; readonly reason?: string; readonly comment?: string },
  { auditFor }: Settings,
  { db }: DatabaseConnection,
  logger: Logger,
): Promise<AuditOptions | undefined> {
  const by = byFrom(options)
  const { why, reason, comment } = options
  const said = why ?? reason ?? comment
  if (by.trim() === '' || by.length > LONGEST_BY)
    throw new UsageError(
      `--by: expected a name of 1 to ${LONGEST_BY} characters, got ${by.trim() === '' ? 'none' : by.length}`,
    )
  if (why !== undefined && why.length > LONGEST_WHY)
    throw new UsageError(`--why: expected at most ${LONGEST_WHY} characters, got ${why.length}`)
  const [missing] = await missingRights(db, [{ collection: AUDIT_COLLECTION, actions: ['find', 'insert', 'update'] }])
  if (missing) logger.warn(`no entry in the audit is kept of this command: ${missing.message}`)
  return missing ? undefined : { by, why: said?.slice(0, LONGEST_WHY), keepFor: `${auditFor}ms` }
}
