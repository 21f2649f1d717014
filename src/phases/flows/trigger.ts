/** The state of a run's task. `skipped`: its rule can't be met any more. */
export type TaskState = 'waiting' | 'open' | 'parked' | 'succeeded' | 'failed' | 'skipped'

/** The rules for the start of a task, from how those before it have ended: it begins as soon as its rule is met, whatever the others do. */
export const TRIGGER_RULES = [
  'allSucceeded',
  'allFailed',
  'allDone',
  'oneSucceeded',
  'oneFailed',
  'noneFailed',
] as const
/**
 * The rule for the start of a task: `allSucceeded`, `allFailed`, `allDone` (however they ended, or were skipped), `oneSucceeded`, `oneFailed`, or
 * `noneFailed` (all have ended or were skipped).
 */
export type TriggerRule = (typeof TRIGGER_RULES)[number]

/** A task among others. */
export interface TaskNode {
  readonly after: readonly string[]
  readonly when: TriggerRule
}

/** Whether a task of this state does no more. */
export const hasEnded = (state: unknown): boolean => state === 'succeeded' || state === 'failed' || state === 'skipped'

/** The verdict of a rule on the tasks before one. */
export function triggered(rule: TriggerRule, before: readonly TaskState[]): 'begins' | 'never' | 'waits' {
  const has = (...states: TaskState[]) => before.some((state) => states.includes(state))
  const areOver = !has('waiting', 'open', 'parked')
  const verdict = (begins: boolean, never: boolean) => (begins ? 'begins' : never ? 'never' : 'waits')
  if (before.length === 0) return 'begins'
  switch (rule) {
    case 'allSucceeded':
      return verdict(areOver && !has('failed', 'skipped'), has('failed', 'skipped'))
    case 'allFailed':
      return verdict(areOver && !has('succeeded', 'skipped'), has('succeeded', 'skipped'))
    case 'allDone':
      return verdict(areOver, false)
    case 'oneSucceeded':
      return verdict(has('succeeded'), areOver)
    case 'oneFailed':
      return verdict(has('failed'), areOver)
    case 'noneFailed':
      return verdict(areOver && !has('failed'), has('failed'))
  }
}

/** The state of a run. */
export interface RunState {
  /** The state of each task. */
  readonly states: ReadonlyMap<string, TaskState>
  /** The tasks that begin now. */
  readonly begins: readonly string[]
  /** True once nothing is left to begin or to end. */
  readonly isOver: boolean
  /** True for a run that is over and has failed: a task that nothing comes after has failed, or was skipped because of a failure. */
  readonly hasFailed: boolean
}

/**
 * Computes the state of a run from the states of the tasks that have begun.
 * @param tasks each after those before it
 */
export function runState(tasks: ReadonlyMap<string, TaskNode>, begun: ReadonlyMap<string, TaskState>): RunState {
  const states = new Map<string, TaskState>()
  const begins: string[] = []
  /** The tasks that have failed, or were skipped because of one that failed. */
  const bad = new Set<string>()
  for (const [name, { after, when }] of tasks) {
    const before = after.map((one) => states.get(one)!)
    const verdict = triggered(when, before)
    const state = begun.get(name) ?? (verdict === 'never' ? 'skipped' : 'waiting')
    if (!begun.has(name) && verdict === 'begins') begins.push(name)
    if (state === 'failed' || (state === 'skipped' && after.some((one) => bad.has(one)))) bad.add(name)
    states.set(name, state)
  }
  const isOver = [...states.values()].every(hasEnded)
  const inner = new Set([...tasks.values()].flatMap(({ after }) => after))
  const hasFailed = isOver && [...bad].some((name) => !inner.has(name))
  return { states, begins, isOver, hasFailed }
}
