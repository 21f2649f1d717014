import { type Limit, readLimits } from '../../lock/index.js'
import { type NamedLimit, namedLimits } from '../../phases/index.js'
import type { System } from '../system/system.js'

/** A limit and its users. */
export interface ListedLimit extends Limit {
  /** The lifecycles that name it. */
  readonly neededBy: readonly string[]
  /** The number of slots that the step with the largest need takes; 0 if no lifecycle names it. */
  readonly needs: number
  /** false if only lifecycles name it and it was never set. If they declare slots it has those, otherwise documents that need it wait. */
  readonly stored: boolean
}

/**
 * All limits by name, including those that lifecycles name and that were never set.
 * @example await listLimits(system) // [{ name: 'gitlab-api', slots: 5, neededBy: ['order'], needs: 1, stored: true, holders: [...], ... }]
 * @param options `keys`: include those of single values. Default: false
 */
export async function listLimits(
  { db, models }: Pick<System, 'db' | 'models'>,
  { keys = false }: { readonly keys?: boolean } = {},
): Promise<ListedLimit[]> {
  const { limits } = await readLimits(db, keys ? undefined : 'shared')
  const named = namedLimits(models)
  const byName = new Map(named.map((one) => [one.limit, one]))
  const stored = limits.map((limit) => {
    const { lifecycles = [], needs = 0 } = byName.get(limit.name) ?? {}
    return { ...limit, neededBy: lifecycles, needs, stored: true }
  })
  const names = new Set(limits.map(({ name }) => name))
  const others = named.filter(({ limit }) => !names.has(limit)).map(unstored)
  return [...stored, ...others].sort((a, b) => (a.name < b.name ? -1 : 1))
}

const unstored = ({ limit: name, declared = 0, lifecycles: neededBy, needs }: NamedLimit): ListedLimit => ({
  ...{ name, slots: declared, rate: null, paused: null, holders: [], damaged: null },
  ...{ neededBy, needs, stored: false },
})
