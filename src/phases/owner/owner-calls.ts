import type { ClientSession } from 'mongodb'
import { canBeId, NO_ID } from '../../lock/index.js'
import { checkOptions, InvalidOptions, shown, t } from '../../options/index.js'
import { UnknownState } from '../errors/errors.js'
import { type LifecycleModel, whyUnknownState } from '../model/model.js'
import type { OwnerOptions } from './owner-types.js'

/** The options of calls that are given none. */
export const NO_OPTIONS = {}

const aSession = t.where<never>(
  (value) => value == null || typeof (value as { inTransaction?: unknown }).inTransaction === 'function',
  t.expecting("a session of the driver's (client.startSession())"),
)

/** The options of most calls; the code that reads `audit` checks it. */
export const CALL_OPTIONS = { session: t.optional(aSession), audit: t.anything<never>() }
const callOptions = t.object(CALL_OPTIONS)
export const stateOptions = t.object({ ...CALL_OPTIONS, force: t.optional(t.flag) })
export const unparkOptions = t.object({ ...CALL_OPTIONS, force: t.optional(t.flag), by: t.optional(t.name) })

/**
 * Checks what is to become part of a filter as the `_id` of one document: there an operator, a pattern or `undefined` would match others.
 * @throws InvalidOptions
 */
export function checkId(called: string, id: unknown): void {
  if (!canBeId(id))
    throw new InvalidOptions(called, [`expected an _id that a document can have (${NO_ID}), got ${shown(id)}`])
}

/**
 * Checks the arguments of a call on one document.
 * @throws InvalidOptions
 */
export function checkCall(
  called: string,
  id: unknown,
  options: unknown,
  types: t.ObjectType<t.Fields> = callOptions,
): void {
  checkId(called, id)
  checkCallOptions(called, options, types)
}

/** @throws InvalidOptions */
export function checkCallOptions(called: string, options: unknown, types: t.ObjectType<t.Fields> = callOptions): void {
  if (options !== NO_OPTIONS) checkOptions(called, types, options)
}

/** @throws InvalidOptions for a value that isn't a state; UnknownState for one that no rule names, unless it is forced */
export function checkState(
  model: LifecycleModel,
  state: unknown,
  { force }: { readonly force?: boolean | undefined },
): void {
  if (typeof state !== 'string' && state !== null)
    throw new InvalidOptions('setState', [`state: expected a string, got ${shown(state)}`])
  const problem = force === true ? undefined : whyUnknownState(model, state)
  if (problem === undefined) return
  const known = model.rules.map((rule) => rule.when)
  throw new UnknownState(model.name, state, [...new Set(known)], problem)
}

/**
 * The driver's options for the caller's session: the driver takes no `session: undefined`. Inside a transaction it leaves our write concern to the
 * transaction's own.
 */
export function inSession({ session }: OwnerOptions): { session?: ClientSession } {
  return session ? { session: session as unknown as ClientSession } : {}
}
