import type { Db, Document } from 'mongodb'
import { answered } from '../database/index.js'
import type { DoorbellMode } from '../options/index.js'
import type { DoorbellKind } from './source.js'

/**
 * What a deployment offers, by its answer to `hello`: members of replica sets (`setName`) and routers of sharded clusters
 * (`msg: 'isdbgrid'`) have change streams, a standalone server doesn't.
 */
export function kindBy(hello: Document): DoorbellKind {
  return typeof hello['setName'] === 'string' || hello['msg'] === 'isdbgrid' ? 'changeStream' : 'capped'
}

/** The kind to try first. */
export async function chooseKind(db: Db, mode: Exclude<DoorbellMode, 'off'>): Promise<DoorbellKind> {
  return mode === 'auto' ? kindBy(await answered(db.command({ hello: 1 }))) : mode
}
