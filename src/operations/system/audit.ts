import { type AuditedAction, type AuditedEnd, audited } from '../../phases/index.js'
import type { System } from './system.js'

/**
 * Runs an action, and records it in the audit if the system names an author.
 * @param ended the meaning of its result for the entry. Default: it is done
 */
export const recorded = <T>(
  { db, audit }: System,
  about: AuditedAction,
  act: () => Promise<T>,
  ended: (result: T) => AuditedEnd = () => ({ outcome: 'done' }),
): Promise<T> => (audit ? audited(db, audit, about, { act, ended }) : act())
