/** One move of a machine; `broken`: the invariants that it breaks. */
export interface Move<S> {
  readonly action: string
  readonly to: S
  readonly broken?: readonly string[]
}

export interface Machine<S> {
  readonly initial: readonly S[]
  moves(state: S): Iterable<Move<S>>
  /** The same for states that are the same. */
  keyOf(state: S): string
}

export interface Exploration {
  readonly states: number
  readonly moves: number
  /** The shortest way to break each invariant that was found broken, as the actions in turn. */
  readonly broken: Readonly<Record<string, readonly string[]>>
}

/** A machine that has more states than its bounds were thought to give. */
export class TooManyStates extends Error {
  override readonly name = 'TooManyStates'
}

/**
 * All states that can be reached, breadth first, so that what it finds is the shortest way there. What comes after a broken invariant
 * isn't looked at, unless another one is looked for.
 * @param until stops as soon as this invariant is broken
 */
export function explore<S>(
  machine: Machine<S>,
  { until, most = 400_000 }: { until?: string; most?: number } = {},
): Exploration {
  const states: S[] = []
  const cameBy: { from: number; action: string }[] = []
  const known = new Set<string>()
  const broken: Record<string, readonly string[]> = {}
  let count = 0
  const add = (state: S, from: number, action: string) => {
    const key = machine.keyOf(state)
    if (known.has(key)) return
    if (known.size >= most) throw new TooManyStates(`expected at most ${most} states, there are more`)
    known.add(key)
    states.push(state)
    cameBy.push({ from, action })
  }
  const wayTo = (state: number): string[] => {
    const way: string[] = []
    for (let at = state; at >= 0; at = cameBy[at]!.from) way.unshift(cameBy[at]!.action)
    return way.slice(1)
  }
  for (const state of machine.initial) add(state, -1, 'initial')
  for (let at = 0; at < states.length; at += 1) {
    for (const { action, to, broken: breaks = [] } of machine.moves(states[at]!)) {
      count += 1
      for (const name of breaks) broken[name] ??= [...wayTo(at), action]
      if (until !== undefined && until in broken) return { states: known.size, moves: count, broken }
      if (breaks.length === 0 || until !== undefined) add(to, at, action)
    }
    states[at] = undefined as S // what is behind us needs no memory
  }
  return { states: known.size, moves: count, broken }
}
