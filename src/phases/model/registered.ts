import type { Db, Document } from 'mongodb'
import {
  CALLBACK_NAMES,
  LIFECYCLES_COLLECTION,
  readLockTimeouts,
  readOwnFields,
  type Terms,
  termsOf,
} from '../../lock/index.js'
import { COLLECTION_NAME, t } from '../../options/index.js'
import type { LifecycleModel, Phase } from './model.js'
import { eachKeyOf, fieldName, type LifecycleSettings, parseSettings } from './settings.js'

const listOf = <T>(type: t.Type<T>) => t.list(type, t.expecting('a list'))

/**
 * The fields of an entry in `phaselock.lifecycles` that describe a lifecycle, besides its name and collection, for programs that don't have its code.
 * Each is a field of its own, so that a version that doesn't know one leaves it alone; one that a person has broken counts as absent.
 * A definition's `moveTo` is stored as `goTo`, because replicas of older versions read that name.
 */
const FIELDS = t.partOf({
  graph: t.orAbsent(
    listOf(
      t.partOf({
        name: t.text,
        kind: t.oneOf(['working', 'resting', 'final']),
        next: listOf(t.text),
        entry: t.flag,
        deadline: t.optional(t.partOf({ afterMs: t.aNumber, goTo: t.text, setState: t.optional(t.text) })),
        keepForMs: t.aNumber,
        failed: t.orAbsent(t.flag),
        limits: t.orAbsent(listOf(t.partOf({ limit: t.text, slots: t.aNumber }))),
      }),
    ),
  ),
  rules: t.orAbsent(
    listOf(t.partOf({ when: t.text, from: listOf(t.text), goTo: t.text, setState: t.optional(t.text) })),
  ),
  renames: t.orAbsent(listOf(t.partOf({ from: t.text, to: t.text }))),
  progress: t.orAbsent(fieldName),
  legacyWriters: t.orAbsent(t.flag),
  child: t.orAbsent(t.flag),
  callbacks: t.orAbsent(listOf(t.oneOf(CALLBACK_NAMES))),
  maxAttempts: t.orAbsent(t.aNumber),
  maxClaims: t.orAbsent(t.aNumber),
  order: t.orAbsent(t.partOf({ priorityBy: t.orAbsent(fieldName), fairBy: t.orAbsent(fieldName) })),
  keys: t.orAbsent(
    t.partOf({
      limitBy: t.orAbsent(fieldName),
      each: t.orAbsent(
        t.partOf({ slots: t.orAbsent(t.aNumber), rate: t.orAbsent(t.partOf({ starts: t.aNumber, perMs: t.aNumber })) }),
      ),
    }),
  ),
  search: t.orAbsent(listOf(fieldName)),
  declaredLimits: t.orAbsent(listOf(t.partOf({ limit: t.text, slots: t.aNumber }))),
  /** The `lockTimeout` of the definition; the field `lockTimeout` is the one in force. */
  definedLockTimeout: t.orAbsent(t.aNumber),
  /** The names of the phases and of those renamed: all that older versions store. */
  phases: t.orAbsent(listOf(t.text)),
  lockTimeout: t.orAbsent(t.aNumber),
})

type Registered = t.ValueOf<typeof FIELDS>
export type RegisteredFields = Omit<Required<Registered>, 'phases' | 'lockTimeout'>

export function registeredFields(model: LifecycleModel): RegisteredFields {
  const { phases, entries, rules, renames, settings } = model
  const { progress, legacyWriters, child = false, maxAttempts, maxClaims, lockTimeoutMs: definedLockTimeout } = settings
  const graph = [...phases.values()].map((one) => ({
    ...one,
    deadline: one.deadline && storedMove(one.deadline),
    entry: entries.includes(one.name),
  }))
  const keys = { limitBy: settings.limitBy, each: eachKeyOf(settings) }
  const order = { priorityBy: settings.priorityBy, fairBy: settings.fairBy }
  const fields = {
    graph,
    rules: rules.map(storedMove),
    renames,
    progress,
    legacyWriters,
    child,
    callbacks: settings.callbacks,
    maxAttempts,
    maxClaims,
    definedLockTimeout,
    order,
    keys,
    search: settings.search,
    declaredLimits: [...(model.declaredLimits ?? [])].map(([limit, slots]) => ({ limit, slots })),
  }
  return JSON.parse(JSON.stringify(fields)) // without undefined values: the driver would store null
}

/** A rule or deadline as it is stored. The order of its fields stays, because an entry in another order counts as another definition. */
const storedMove = <M extends { readonly moveTo: string }>(part: M) =>
  Object.fromEntries(Object.entries(part).map(([key, value]) => [key === 'moveTo' ? 'goTo' : key, value])) as Omit<
    M,
    'moveTo'
  > & { readonly goTo: string }
const readMove = <M extends { readonly goTo: string }>({ goTo: moveTo, ...rest }: M) => ({ ...rest, moveTo })

/** A lifecycle as its entry in `phaselock.lifecycles` describes it. */
export interface RegisteredModel {
  readonly model: LifecycleModel
  /**
   * The phases that are known only by name, and taken to be working. All of them, where the replica that registered the lifecycle was of a version
   * that didn't store more; otherwise those that such a replica added later.
   */
  readonly onlyNamed: readonly string[]
}

/** Reads an entry. Undefined: it doesn't name a lifecycle, or its collection can't exist. */
export function modelRegistered(entry: Document): RegisteredModel | undefined {
  const { _id: name, collection } = entry
  if (typeof name !== 'string' || name === '' || typeof collection !== 'string') return undefined
  if (!COLLECTION_NAME.test(collection)) return undefined
  const {
    graph = [],
    rules = [],
    renames = [],
    phases: listed = [],
    definedLockTimeout,
    lockTimeout,
    order,
    keys,
    declaredLimits = [],
    ...rest
  } = (t.readAs(FIELDS, entry) as { value: Registered }).value
  const isKnown = (phase: string) =>
    graph.some((one) => one.name === phase) || renames.some((one) => one.from === phase)
  const onlyNamed = listed.filter((phase) => !isKnown(phase))
  const phases: Phase[] = [
    ...graph.map(({ entry: _, deadline, ...one }) => ({
      ...one,
      deadline: deadline && { setState: undefined, ...readMove(deadline) },
    })),
    ...onlyNamed.map((one) => ({ name: one, kind: 'working', next: [], deadline: undefined, keepForMs: 0 }) as const),
  ]
  const entries = graph.length > 0 ? graph.filter((one) => one.entry).map((one) => one.name) : listed.slice(0, 1)
  const given = Object.entries(rest).filter(([, value]) => value !== undefined)
  const defaults = parseSettings({}, [])!
  const lockTimeoutMs = definedLockTimeout ?? lockTimeout ?? defaults.lockTimeoutMs
  const settings: LifecycleSettings = { ...defaults, ...Object.fromEntries(given), ...order, ...keys, lockTimeoutMs }
  const byName = new Map(phases.map((one) => [one.name, one]))
  const declared =
    declaredLimits.length > 0 && new Map(declaredLimits.map(({ limit, slots }) => [limit, slots] as const))
  const model = { name, collection, phases: byName, entries, rules: rules.map(readMove), renames, settings }
  return { model: { ...model, ...(declared && { declaredLimits: declared }) }, onlyNamed }
}

/** Reads the lifecycles of a database whose entries match. */
export async function registeredModels(db: Db, entries: Document): Promise<LifecycleModel[]> {
  const lifecycles = db.collection(LIFECYCLES_COLLECTION)
  const found = await readOwnFields((how) => lifecycles.find(entries, how).toArray())
  return found.flatMap((entry) => modelRegistered(entry)?.model ?? [])
}

/** Reads the terms in force for a lifecycle: its own, where it isn't registered yet. */
export async function termsInForce(db: Db, { name, settings }: LifecycleModel): Promise<Terms> {
  const inForce = (await readLockTimeouts(db, [name])).get(name)
  const { progress, legacyWriters, callbacks, lockTimeoutMs } = settings
  const validUntil = inForce?.knownUntil
  return termsOf(inForce?.dueMs ?? lockTimeoutMs, { progress, legacyWriters, callbacks, validUntil })
}
