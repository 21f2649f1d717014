import { createHash } from 'node:crypto'
import { BSON, type Document } from 'mongodb'
import { idText, withParts } from '../../lock/index.js'
import { numbered, readOptions } from '../../options/index.js'
import type { LimitNode, PhaseNode } from '../model/check-graph.js'
import type { LifecycleModel, LimitNeed, Phase } from '../model/model.js'
import { eachKeyOf, type LifecycleSettings, phaseLimits } from '../model/settings.js'

export const maxActiveLimit = (lifecycle: string): string => `${lifecycle} (maxActive)`

/** The name of a key's limit: `order tenantId=acme`. */
export function keyLimitName(lifecycle: string, field: string, value: string): string {
  const short = value.length <= LONGEST_KEY ? value : `${value.slice(0, LONGEST_KEY)}~${digestOf(value)}`
  return `${keyLimits(lifecycle, field)}=${short}`
}

/** The common name of all limits of a field's keys: `order tenantId`. */
export const keyLimits = (lifecycle: string, field: string): string => `${lifecycle} ${field}`

const LONGEST_KEY = 120
const digestOf = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 16)

/**
 * A key's value with regular expressions replaced by their sources. Candidates and claimed documents are read in two ways, and one of these loses
 * options; by their names the two would be different keys.
 */
const withSources = (value: unknown): unknown =>
  withParts(value, (part) => {
    if (part instanceof RegExp) return part.source
    return part instanceof BSON.BSONRegExp ? sourceOf(part.pattern) : part
  })

/** A pattern as JavaScript escapes it. A document whose pattern JavaScript can't read is read as an unreadable one. */
function sourceOf(pattern: string): string {
  try {
    return new RegExp(pattern).source
  } catch {
    return pattern
  }
}

/** The limit that a document needs because of the value of a field; undefined: its lifecycle has no such limit. */
export function keyNeedOf({ name, settings }: LifecycleModel, document: Document): LimitNeed | undefined {
  const { limitBy } = settings
  const each = eachKeyOf(settings)
  if (limitBy === undefined || each === undefined) return undefined
  const value: unknown = document[limitBy] ?? null
  const limit = keyLimitName(name, limitBy, value === null ? '(none)' : idText(withSources(value)))
  return { limit, slots: 1, key: { ...each, of: keyLimits(name, limitBy) } }
}

/** The numbers of slots that these lifecycles declare, by the limit's name: as the replica registers them, the last one counts. */
export const declaredLimits = (models: readonly LifecycleModel[]): ReadonlyMap<string, number> =>
  new Map(models.flatMap((model) => [...(model.declaredLimits ?? [])]))

/** A limit that lifecycles name. */
export interface NamedLimit {
  readonly limit: string
  /** The lifecycles that name it. */
  readonly lifecycles: readonly string[]
  /** The number of slots that they declare; undefined: none of them does. */
  readonly declared: number | undefined
  /** The number of slots that the step with the largest need takes. */
  readonly needs: number
}

/** The limits that these lifecycles name, except those of keys. */
export function namedLimits(models: readonly LifecycleModel[]): NamedLimit[] {
  const needs = models.flatMap(({ name: lifecycle, phases, declaredLimits }) =>
    [...phases.values()].flatMap(({ limits = [] }) =>
      limits.map(({ limit, slots }) => ({ limit, slots, lifecycle, declared: declaredLimits?.get(limit) })),
    ),
  )
  return [...Map.groupBy(needs, ({ limit }) => limit)].map(([limit, some]) => ({
    limit,
    lifecycles: [...new Set(some.map(({ lifecycle }) => lifecycle))],
    declared: some.find(({ declared }) => declared !== undefined)?.declared,
    needs: Math.max(...some.map(({ slots }) => slots)),
  }))
}

/** The limits that the documents of one lifecycle need, and the slots that it declares. */
export class LimitsOf {
  readonly declared = new Map<string, number>()
  private readonly ofAll: readonly LimitNode[]

  constructor(lifecycle: string, settings: Pick<LifecycleSettings, 'limits' | 'maxActive'> | undefined) {
    const { limits = [], maxActive } = settings ?? {}
    const active = maxActive === undefined ? [] : [{ name: maxActiveLimit(lifecycle), slots: maxActive }]
    this.ofAll = [...limits, ...active]
  }

  /** The limits of a working phase; one that it shares with its lifecycle is needed once, with the phase's own number of slots. */
  ofPhase(name: string, needs: Pick<PhaseNode, 'limits' | 'slots'>, problems: string[]): Pick<Phase, 'limits'> {
    const read = readOptions(phaseLimits, needs)
    if ('problems' in read) {
      problems.push(...read.problems.map((problem) => `phase '${name}'.${problem}`))
      return {}
    }
    const { limits, slots } = read.options
    const all = new Map<string, LimitNeed>()
    for (const [nodes, each] of [[this.ofAll, 1] as const, [limits, slots] as const])
      for (const node of nodes) {
        const limit = this.nameOf(node, problems)
        all.set(limit, { limit, slots: each })
      }
    const sorted = [...all.values()].sort((a, b) => (a.limit < b.limit ? -1 : 1))
    return sorted.length > 0 ? { limits: sorted } : {}
  }

  private nameOf(node: LimitNode, problems: string[]): string {
    if (typeof node === 'string') return node
    const { name, slots } = node
    const before = this.declared.get(name) ?? slots
    if (before !== slots)
      problems.push(`limit '${name}' is declared with ${numbered(before, 'slot')} and with ${slots}`)
    this.declared.set(name, slots)
    return name
  }
}
