import type { Db, Document } from 'mongodb'
import { answered } from '../database/index.js'
import type { DoorbellKind } from './source.js'

/**
 * Whether rings are heard, and how: `auto` chooses by what the server is; `off` neither rings nor listens.
 * Where a change stream can't be had, a capped collection's cursor is tried, also when a change stream was asked for.
 */
export const DOORBELL_MODES = ['auto', 'capped', 'changeStream', 'off'] as const
export type DoorbellMode = (typeof DOORBELL_MODES)[number]

/**
 * What a deployment has, by its answer to `hello`: members of replica sets (`setName`) and routers of sharded clusters
 * (`msg: 'isdbgrid'`) have change streams, a standalone server has none.
 */
export function kindBy(hello: Document): DoorbellKind {
  return typeof hello['setName'] === 'string' || hello['msg'] === 'isdbgrid' ? 'changeStream' : 'capped'
}

/** The kind to try first. */
export async function chooseKind(db: Db, mode: Exclude<DoorbellMode, 'off'>): Promise<DoorbellKind> {
  return mode === 'auto' ? kindBy(await answered(db.command({ hello: 1 }))) : mode
}
