import { childListsIn, isParked } from '../../lock/index.js'
import { numbered } from '../../options/index.js'
import type { BoundLifecycle } from '../definition/bound-lifecycle.js'
import type { LifecycleSettingsSpec, LimitSpec } from '../definition/graph.js'
import { type Lifecycle, lifecycleOf } from '../definition/lifecycle.js'
import { ChildExists, InvalidLifecycle } from '../errors/errors.js'
import { shown } from '../errors/kept-text.js'
import { isObject } from '../model/check-graph.js'
import { RESERVED_FIELDS } from '../outcome/outcome.js'
import type { ChildDocument, Handler, Step } from '../step/step.js'
import { hasEnded, runState, type TaskNode, type TaskState, type TriggerRule, tasksInOrder } from './tasks.js'

/** A task of a flow: the tasks before it, its rule and its limits. */
export interface FlowTaskSpec<Names extends string> {
  /** The tasks that it comes after. Default: none, it begins with the run. */
  readonly after?: readonly Names[]
  /** The rule for its start, from how those have ended. Default `allSucceeded`. */
  readonly when?: TriggerRule
  /** Limits across all replicas that it needs while it runs (docs/limits.md). Default: none. */
  readonly limits?: readonly LimitSpec[]
  /** The number of slots of each. Default 1. */
  readonly slots?: number
}

/** The tasks of a flow, each by its name. */
export type FlowTasks<T> = { readonly [Name in keyof T]: FlowTaskSpec<keyof T & string> }

/** The argument of a flow's `define`. */
export interface FlowSpec<T> {
  /** The name, unique in its database. Its tasks' lifecycle is called `<name>.task`. */
  readonly name: string
  /** The collection of its runs. Its tasks' documents are in `<collection>.tasks`. */
  readonly collection: string
  /** Each task by its name; a circle is refused. At most 100. */
  readonly tasks: T
  /** A task that is parked `waits` for a person, and its run with it; or it has failed (`fails`). Default `waits`. */
  readonly parked?: 'waits' | 'fails'
  /** The settings of the tasks' lifecycle, such as `stepTimeout` and `maxAttempts`. Default: those of any lifecycle. */
  readonly settings?: Omit<LifecycleSettingsSpec, 'child' | 'reads' | 'fields'>
}

/** A run as it is stored: the owner's document, and the state of each task. */
export type FlowRun<Doc> = Doc & {
  /** `Deleted`: it is removed, its tasks first. */
  readonly state?: 'Deleted'
  /** The state of each task when the run was last worked on. */
  readonly tasks?: Readonly<Record<string, TaskState>>
  /**
   * Tasks to begin again, with all that come after them, and with the run's fields as they are then. Set with the operation `redo` to the phase
   * `Running`; the run removes it.
   */
  readonly redo?: readonly string[]
  /** Tasks that are removed before they begin again: all that were in `redo` since the last redo began. */
  readonly redoing?: readonly string[]
}

/** The document of a task in a run. */
export interface FlowTask<Doc> {
  /** An `_id` made of its run's lifecycle and `_id`, and of its name. */
  readonly _id: string
  /** `Deleted`: it is removed, its own children first. */
  readonly state?: 'Deleted'
  /** The run's own fields, as they were when the task began. */
  readonly run: Doc
  /** The `result` of each task before it, by their names. */
  readonly results: Readonly<Record<string, unknown>>
  /** The result for the tasks after it, and for people: `step.moveTo('Succeeded', { set: { result } })`. */
  readonly result?: unknown
}

const WORKING = { next: ['Succeeded', 'Failed'] } as const
/** The phases of runs and tasks for their ends and removal: their children go first. */
const ENDS = {
  Succeeded: { rest: true },
  Failed: { rest: true, failed: true },
  Deleting: { next: ['Deleted'] },
  Deleted: { final: true, failed: true },
} as const
const RULES = [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }] as const

type RunPhases = { readonly Running: typeof WORKING } & typeof ENDS
type TaskPhases<T> = { readonly [Name in keyof T]: typeof WORKING } & typeof ENDS

/** The handlers of a flow's tasks. */
export type FlowHandlers<Doc, T> = {
  readonly [Name in keyof T & string]: Handler<'Succeeded' | 'Failed', FlowTask<Doc>>
}

/** A run of several tasks: each begins by how others have ended. */
export interface Flow<Doc, T> {
  /** The name as it was defined. */
  readonly name: string
  /** The lifecycle of its runs: Running, then Succeeded or Failed. */
  readonly runs: Lifecycle<FlowRun<Doc>, RunPhases>
  /** The lifecycle of its tasks: each task is a phase of it. */
  readonly tasks: Lifecycle<FlowTask<Doc>, TaskPhases<T>>
  /** Gives each task its handler; returns the lifecycles that a replica runs: the runs, and the tasks. */
  handle(
    handlers: FlowHandlers<Doc, T>,
  ): [runs: BoundLifecycle<FlowRun<Doc>, RunPhases>, tasks: BoundLifecycle<FlowTask<Doc>, TaskPhases<T>>]
  /** A picture of its tasks, as text for Mermaid. */
  diagram(): string
}

/**
 * Begins a flow whose runs are documents of type `Doc` (docs/flows.md).
 * @throws InvalidLifecycle (from `define`) listing every problem: unknown tasks and rules, tasks in a circle, settings
 */
export function flowOf<Doc extends { readonly _id?: unknown }>(): {
  /** Checks the whole and returns the definition; see {@link FlowSpec}. */
  define<const T extends FlowTasks<T>>(spec: FlowSpec<T>): Flow<Doc, T>
} {
  return { define: (spec) => defined(spec) }
}

const SPEC_KEYS = ['name', 'collection', 'tasks', 'parked', 'settings']

/** The settings of the tasks' lifecycle that the flow decides. */
const FIXED = ['name', 'collection', 'child', 'phases', 'rules', 'renamed', 'reads', 'fields']

function defined<Doc, T>(spec: FlowSpec<T>): Flow<Doc, T> {
  const problems: string[] = []
  if (!isObject(spec))
    throw new InvalidLifecycle('?', [`expected an object with ${SPEC_KEYS.join(', ')}, got ${shown(spec)}`])
  const { name, collection, parked = 'waits', settings = {} } = spec
  for (const [key, value] of Object.entries({ name, collection }))
    if (typeof value !== 'string' || value === '') problems.push(`${key} must be a text, got ${shown(value)}`)
  const unknown = Object.keys(spec).filter((key) => !SPEC_KEYS.includes(key))
  problems.push(...unknown.map((key) => `unknown setting '${key}'; known: ${SPEC_KEYS.join(', ')}`))
  if (parked !== 'waits' && parked !== 'fails') problems.push(`parked must be 'waits' or 'fails', got ${shown(parked)}`)
  if (isObject(settings)) {
    const set = FIXED.filter((key) => key in settings)
    problems.push(...set.map((key) => `settings.${key} can't be set: a flow has its own`))
  } else problems.push(`settings must be an object, got ${shown(settings)}`)
  const nodes = tasksInOrder(spec.tasks, problems)
  if (problems.length > 0) throw new InvalidLifecycle(typeof name === 'string' ? name : '?', problems)
  const phases = Object.entries(spec.tasks as Record<string, FlowTaskSpec<string>>).map(([task, { limits, slots }]) => {
    const needs = { ...(limits && { limits }), ...(slots !== undefined && { slots }) }
    return [task, { entry: true, ...WORKING, ...needs }]
  })
  const tasks = lifecycleOf<FlowTask<Doc>>().define({
    ...settings,
    ...{ name: `${name}.task`, collection: `${collection}.tasks`, child: true },
    phases: { ...Object.fromEntries(phases), ...ENDS },
    rules: RULES,
  } as never) as unknown as Lifecycle<FlowTask<Doc>, TaskPhases<T>>
  const runs = lifecycleOf<{ state?: 'Deleted' }>().define({
    name,
    collection,
    child: true,
    phases: { Running: WORKING, ...ENDS },
    rules: RULES,
  }) as unknown as Lifecycle<FlowRun<Doc>, RunPhases>
  const running = new Running(nodes, tasks as unknown as TaskLifecycle, parked)
  return {
    name,
    runs,
    tasks,
    handle: (handlers) => [
      runs.handle({
        Running: (doc, step) => running.step(doc as AnyDoc, step as unknown as RunStep) as never,
        Deleting,
      }),
      tasks.handle({ ...handlers, Deleting } as never),
    ],
    diagram: () => diagramOf(nodes),
  }
}

async function Deleting<Doc>(_doc: unknown, step: Step<'Deleted', Doc>) {
  const gone = await step.removeChildren()
  return gone.done ? step.moveTo('Deleted') : step.wait(gone.text)
}

type AnyDoc = Readonly<Record<string, unknown>>
type RunStep = Step<'Succeeded' | 'Failed', AnyDoc>
type TaskLifecycle = Lifecycle<FlowTask<AnyDoc>, Record<string, never>>

/** Works on runs: begins each task once, when its rule is met. The rest of the work follows from its tasks' documents alone. */
class Running {
  constructor(
    private readonly nodes: ReadonlyMap<string, TaskNode>,
    private readonly tasks: TaskLifecycle,
    private readonly parked: 'waits' | 'fails',
  ) {}

  async step(doc: AnyDoc, step: RunStep) {
    const wrong = this.wrongNames(doc, 'redo') ?? this.wrongNames(doc, 'redoing')
    if (wrong !== undefined) return step.park(wrong)
    const { redo, redoing } = doc as FlowRun<object>
    // Kept before anything is removed: the next request replaces this one, and would leave it half done.
    const isNothing = redo?.length === 0
    if (redo && !isNothing)
      return step.again({ set: { redo: undefined, redoing: [...new Set([...(redoing ?? []), ...redo])] } })
    if (redoing) return await this.redo(redoing, doc as FlowRun<object>, step)
    // It had ended, and was inserted with `runAgain`, or redone without a list of tasks: all of them begin again. An empty list names none.
    if (isEnded(doc) && !isNothing) return step.again({ set: { redoing: [...this.nodes.keys()] } })
    const found = await step.childrenOf(this.tasks)
    const results = new Map(found.map((task) => [keyOf(task), task.result]))
    const begun = new Map(childListsIn(step.progress).map(({ list }) => [list, 'failed' as TaskState])) // removed by hand
    // A person has damaged the run's lists: the tasks are listed again, and none that exists is inserted again.
    const unlisted = found.map(keyOf).filter((name) => !begun.has(name) && this.nodes.has(name))
    for (const task of found) begun.set(keyOf(task), this.stateOf(task))
    const { states, begins, isOver, hasFailed } = runState(this.nodes, begun)
    const tasks = Object.fromEntries(states)
    if (isOver) return step.moveTo(hasFailed ? 'Failed' : 'Succeeded', { set: { tasks, redo: undefined } })
    const run = Object.fromEntries(Object.entries(doc).filter(([field]) => isOwn(field)))
    for (const name of [...unlisted, ...begins]) {
      const before = this.nodes.get(name)!.after.map((one) => [one, results.get(one) ?? null])
      const document = { run, results: Object.fromEntries(before), phase: name as never }
      const isTaken = await step.children([this.tasks.child(name, document as never)], { list: name }).then(
        () => false,
        (error) => isOfFormerRun(error) || Promise.reject(error),
      )
      // The task of a former run with its _id is removed first.
      if (isTaken) return step.again({ set: { redoing: [name] } })
    }
    const ended = await step.childrenDone({ rule: 'allDone', parked: this.parked, wake: 'each' })
    // A task has ended since they were read.
    if (ended.done) return step.again({ set: { tasks } })
    for (const name of begins) tasks[name] = 'open'
    return step.wait(textOf(tasks), { set: { tasks } })
  }

  private wrongNames(doc: AnyDoc, field: 'redo' | 'redoing'): string | undefined {
    const names = doc[field]
    if (names === undefined) return undefined
    if (Array.isArray(names) && names.every((name) => this.nodes.has(name))) return undefined
    const known = [...this.nodes.keys()].join(', ')
    return `${field}: expected a list of its tasks (${known}), got ${shown(names)}`.slice(0, 1_000)
  }

  /**
   * Removes these tasks and all that come after them, as if they had never begun. It is a step of its own, so that none that begins then is removed
   * again.
   */
  private async redo(names: readonly string[], { tasks: before }: FlowRun<object>, step: RunStep) {
    const again = new Set<string>(names)
    for (const [name, { after }] of this.nodes) if (after.some((one) => again.has(one))) again.add(name)
    const gone = await step.removeChildren({ lists: [...again] })
    if (!gone.done) return step.wait(`before tasks begin again: ${gone.text}`)
    const tasks = { ...before, ...Object.fromEntries([...again].map((name) => [name, 'waiting'] as const)) }
    return step.again({ set: { redoing: undefined, tasks } })
  }

  private stateOf({ phase, lockedAt }: ChildDocument<unknown>): TaskState {
    if (phase === 'Succeeded') return 'succeeded'
    if (phase === 'Failed' || phase === 'Deleted') return 'failed'
    if (!isParked({ lockedAt })) return 'open'
    return this.parked === 'fails' ? 'failed' : 'parked'
  }
}

/** True if a run had ended when its tasks were last recorded. A run that goes on has one that isn't over. */
const isEnded = ({ tasks }: AnyDoc): boolean =>
  isObject(tasks) && Object.keys(tasks).length > 0 && Object.values(tasks).every(hasEnded)
const isOfFormerRun = (error: unknown): boolean => error instanceof ChildExists && error.formerList !== undefined
const keyOf = ({ progress }: ChildDocument<unknown>): string => progress.parent?.key ?? ''
const NOT_OWN: readonly string[] = [...RESERVED_FIELDS.filter((name) => name !== '_id'), 'tasks', 'redo', 'redoing']
const isOwn = (field: string): boolean => !NOT_OWN.includes(field)

/** The state in words: `2 of 4 tasks are over; train is open, report waits`. */
function textOf(tasks: Readonly<Record<string, TaskState>>): string {
  const all = Object.entries(tasks)
  const left = all.filter(([, state]) => ['waiting', 'open', 'parked'].includes(state))
  const busy = left.filter(([, state]) => state !== 'waiting').map(([name, state]) => `${name} is ${state}`)
  return `${all.length - left.length} of ${numbered(all.length, 'task is', 'tasks are')} over; ${busy.slice(0, 10).join(', ')}`
}

function diagramOf(nodes: ReadonlyMap<string, TaskNode>): string {
  const ids = new Map([...nodes.keys()].map((name, i) => [name, `t${i}`]))
  const quoted = (name: string) => `"${name.replaceAll('"', '#quot;')}"`
  const boxes = [...nodes.keys()].map((name) => `  ${ids.get(name)}[${quoted(name)}]`)
  const arrows = [...nodes].flatMap(([name, { after, when }]) =>
    after.map((one) => `  ${ids.get(one)} -->${when === 'allSucceeded' ? '' : `|${when}|`} ${ids.get(name)}`),
  )
  return ['flowchart LR', ...boxes, ...arrows, ''].join('\n')
}
