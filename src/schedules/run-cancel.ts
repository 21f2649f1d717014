import type { Document } from 'mongodb'
import { cancelText, DUE_AND_NOBODYS } from '../lock/index.js'
import { StepAborted } from '../phases/index.js'
import type { RunDocument } from './documents.js'
import { runErrorOf } from './run-record.js'
import type { CancelRunOptions } from './schedule-owner-options.js'

/**
 * The write that stops a run which waits for the document that it has started, as its filter and update. This includes a run that a replica is
 * looking at: the replica loses it, and the run is looked at again.
 */
export function runCancel(runId: string, { by, reason }: CancelRunOptions): [filter: Document, update: Document[]] {
  const error = runErrorOf(new StepAborted('cancelled', cancelText({ by, reason: reason ?? null })))
  const stopping: RunDocument['stopping'] = { why: 'cancelled', by, reason: reason ?? null, error }
  return [
    { _id: runId, phase: 'Running', started: { $exists: true }, outcome: { $exists: false } },
    [{ $set: { stopping: { $ifNull: ['$stopping', { $literal: stopping }] }, ...DUE_AND_NOBODYS } }],
  ]
}
