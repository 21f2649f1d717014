import type { Document } from 'mongodb'
import { isDue, PARKED_AT, type Terms } from '../../../src/lock/index.js'
import { at, type ModelDatabase } from './database.js'
import { LOCK_TIMEOUT } from './protections.js'
import type { World } from './state.js'

const FAR = 1_000

/** Whether somebody who has the document believes in his lease, by his own clock. */
export function hasRival({ tasks, legacy, epoch, tick }: World): boolean {
  if (legacy && legacy.epoch === epoch && tick - legacy.from < LOCK_TIMEOUT) return true
  return tasks.some((task) => !task.doubt && task.epoch === epoch && tick - task.from < LOCK_TIMEOUT)
}

/** Whether somebody has the document, also by the server's clock. */
export function isHeld(world: World): boolean {
  const { document, tasks, legacy, epoch, tick } = world
  const lockedAt = document?.['lockedAt'] as Date | undefined
  if (!lockedAt || lockedAt < at(tick - LOCK_TIMEOUT) || lockedAt > at(tick)) return false
  if (legacy?.epoch === epoch) return true
  return tasks.some((task) => task.epoch === epoch && task.token === (document as Document)['lockedBy'])
}

/** One epoch, one step. */
export const twice = ({ tasks }: World): string[] =>
  new Set(tasks.map(({ epoch }) => epoch)).size < tasks.length ? ['I8'] : []

/** Parked documents apart, and those at rest, each comes due some time without anybody's help. */
export function stuck({ document, tick }: World, database: ModelDatabase, terms: Terms): string[] {
  if (!document || document['phase'] === 'Created') return []
  if (document['lockedAt']?.getTime() === PARKED_AT.getTime()) return []
  const due = () => ({ $expr: isDue(terms) })
  return database.matches('due', due, document, tick + FAR) ? [] : ['I5']
}
