import { meant } from '../../options/index.js'
import { shown } from '../errors/kept-text.js'
import { isObject, notAnObject, unknownKeys } from '../model/check-graph.js'

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

export interface TaskNode {
  readonly after: readonly string[]
  readonly when: TriggerRule
}

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

export interface RunState {
  readonly states: ReadonlyMap<string, TaskState>
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

/** The most tasks of a flow: each has a list of children in its run. */
const MOST_TASKS = 100
const KEYS = ['after', 'when', 'limits', 'slots']
const OTHER_PHASES = ['Succeeded', 'Failed', 'Deleting', 'Deleted']

/** Puts the tasks in order, each after those before it; adds their problems to `problems`. */
export function tasksInOrder(given: unknown, problems: string[]): Map<string, TaskNode> {
  const tasks = new Map<string, TaskNode>()
  if (!isObject(given) || Object.keys(given).length === 0) {
    problems.push(`tasks must be an object with a task at least, got ${shown(given)}`)
    return tasks
  }
  const names = Object.keys(given)
  if (names.length > MOST_TASKS) problems.push(`tasks: expected at most ${MOST_TASKS}, got ${names.length}`)
  for (const name of names) problems.push(...taskProblems(name, given[name], names))
  if (problems.length > 0) return tasks
  const nodes = new Map(names.map((name) => [name, nodeOf(given[name] as Partial<TaskNode>)]))
  const circle = circleIn(nodes)
  if (circle) {
    problems.push(`tasks wait for each other in a circle: ${circle.join(' -> ')}`)
    return tasks
  }
  const add = (name: string) => {
    if (tasks.has(name)) return
    const node = nodes.get(name)!
    for (const one of node.after) add(one)
    tasks.set(name, node)
  }
  for (const name of names) add(name)
  return tasks
}

const nodeOf = ({ after = [], when = 'allSucceeded' }: Partial<TaskNode>): TaskNode => ({ after, when })

function taskProblems(name: string, task: unknown, names: readonly string[]): string[] {
  const where = `task '${name}'`
  if (!isObject(task)) return [notAnObject(where, task)]
  const problems = unknownKeys(where, task, KEYS)
  if (OTHER_PHASES.includes(name)) problems.push(`${where}: choose another name, ${name} is a phase of all tasks`)
  if (name.length > 200 || name === '') problems.push(`${where}: expected a name of 1 to 200 characters`)
  const { after = [], when = 'allSucceeded' } = task
  if (!TRIGGER_RULES.includes(when as TriggerRule))
    problems.push(`${where}.when: expected one of ${TRIGGER_RULES.join(', ')}, got ${shown(when)}`)
  if (!Array.isArray(after)) return [...problems, `${where}.after must be a list of tasks, got ${shown(after)}`]
  for (const one of after)
    if (!names.includes(one))
      problems.push(
        `${where}.after names an unknown task ${shown(one)}${meant(String(one), names)}; known: ${names.join(', ')}`,
      )
  if (new Set(after).size < after.length) problems.push(`${where}.after names a task twice`)
  if (task['when'] !== undefined && after.length === 0)
    problems.push(`${where} has a rule (when) but comes after no task`)
  return problems
}

function circleIn(nodes: ReadonlyMap<string, TaskNode>): string[] | undefined {
  const done = new Set<string>()
  const find = (name: string, way: readonly string[]): string[] | undefined => {
    if (way.includes(name)) return [...way.slice(way.indexOf(name)), name]
    if (done.has(name)) return undefined
    for (const one of nodes.get(name)!.after) {
      const found = find(one, [...way, name])
      if (found) return found
    }
    done.add(name)
    return undefined
  }
  for (const name of nodes.keys()) {
    const found = find(name, [])
    if (found) return found
  }
  return undefined
}
