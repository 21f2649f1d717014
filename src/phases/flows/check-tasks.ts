import { meant } from '../../options/index.js'
import { shown } from '../errors/kept-text.js'
import { isObject } from '../model/check-graph.js'
import { type TaskNode, TRIGGER_RULES, type TriggerRule } from './trigger.js'

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
  if (!isObject(task)) return [`${where} must be an object, got ${shown(task)}`]
  const unknown = Object.keys(task).filter((key) => !KEYS.includes(key))
  const problems = unknown.map(
    (key) => `${where} has an unknown key '${key}'${meant(key, KEYS)}; known: ${KEYS.join(', ')}`,
  )
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

/** A way from a task back to itself. */
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
