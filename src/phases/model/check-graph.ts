import { meant, renamedNow } from '../../options/index.js'
import { shown } from '../errors/kept-text.js'

/** A phase as the checks see it, whatever JavaScript passed. */
export interface PhaseNode {
  readonly next?: readonly string[]
  readonly rest?: true
  readonly final?: true
  readonly entry?: boolean
  readonly deadline?: { readonly after: string; readonly moveTo: string; readonly setState?: string }
  readonly keepFor?: string
  readonly failed?: true
  readonly limits?: readonly LimitNode[]
  readonly slots?: number
}

/** A limit by its name, or with the number of slots that it has unless a person sets another. */
export type LimitNode = string | { readonly name: string; readonly slots: number }

export interface RuleNode {
  readonly when: string
  readonly from: readonly string[] | 'any'
  readonly moveTo: string
  readonly setState?: string
}

export type Phases = Readonly<Record<string, PhaseNode>>

const PHASE_KEYS = ['next', 'rest', 'final', 'entry', 'deadline', 'keepFor', 'failed', 'limits', 'slots']
const FLAGS = ['rest', 'final', 'entry']
const DEADLINE_KEYS = ['after', 'moveTo', 'setState']
const RULE_KEYS = ['when', 'from', 'moveTo', 'setState']
/** Former names of keys, with the present ones. */
const FORMER = { goTo: 'moveTo' } as const
const isFormer = (key: string, known: readonly string[]): key is keyof typeof FORMER =>
  Object.hasOwn(FORMER, key) && known.includes(FORMER[key as keyof typeof FORMER])

/** The phases in which documents may be written: those marked `entry`, else the first one declared. */
export function entryPhases(phases: Phases): string[] {
  const marked = Object.keys(phases).filter((name) => phases[name]?.entry)
  return marked.length > 0 ? marked : Object.keys(phases).slice(0, 1)
}

/** The phases that a rule takes documents from; `any`: all but the final ones and its own target. */
export function ruleSources(phases: Phases, rule: RuleNode): string[] {
  if (rule.from !== 'any') return [...rule.from]
  return Object.keys(phases).filter((name) => !phases[name]?.final && name !== rule.moveTo)
}

/**
 * The problems of a lifecycle's graph: unknown or missing keys, undeclared names, phases that nothing leads to, working phases that can't reach a
 * resting or final one. An empty list: the graph is sound.
 */
export function graphProblems(phases: Phases, rules: readonly RuleNode[], renamed: unknown = {}): string[] {
  const names = Object.keys(phases)
  if (names.length === 0) return ['it declares no phases']
  const sound = soundPhases(phases)
  const problems = [
    ...keyProblems(phases, rules),
    ...shapeProblems(sound),
    ...nameProblems(names, sound, soundRules(rules)),
    ...renameProblems(names, renamed),
  ]
  // Only a graph whose names and keys are right has ways to follow: otherwise phases would seem to be cut off.
  if (problems.length > 0) return problems
  return [...unreachable(phases, rules, Object.values(renamed as Record<string, string>)), ...deadEnds(phases)]
}

function shapeProblems(phases: Phases): string[] {
  return Object.entries(phases).flatMap(([name, phase]) => {
    const kinds = [Array.isArray(phase?.next) && 'next', phase?.rest && 'rest', phase?.final && 'final'].filter(Boolean)
    const problems: string[] = []
    if (kinds.length === 0)
      problems.push(`phase '${name}' must be one of working (next: [...]), resting (rest: true) or final (final: true)`)
    if (kinds.length > 1)
      problems.push(
        `phase '${name}' has ${kinds.join(' and ')}, which exclude each other: a phase works (next: [...]), rests (rest: true) or is final (final: true); keep one`,
      )
    if (name.startsWith('$') || name.includes('\0')) problems.push(`phase '${name}': a name can't start with '$'`)
    problems.push(...cutProblems("a phase's name", name))
    if (phase?.final && phase.deadline) problems.push(`phase '${name}' is final and can't have a deadline; use keepFor`)
    if (phase?.keepFor && !phase.final) problems.push(`phase '${name}' has keepFor but isn't final`)
    if (phase?.failed !== undefined && (phase.failed !== true || phase.next))
      problems.push(`phase '${name}': failed must be true, and is for resting and final phases`)
    if ((phase?.limits || phase?.slots) && !phase.next) problems.push(`phase '${name}' has limits but no handler`)
    if (phase?.slots !== undefined && !phase.limits) problems.push(`phase '${name}' has slots but no limits`)
    if (phase?.final && phase.entry) problems.push(`phase '${name}' is final and can't be an entry`)
    return problems
  })
}

function nameProblems(known: readonly string[], phases: Phases, rules: readonly RuleNode[]): string[] {
  const unknown = (name: string, where: string) => unknownPhase(known, name, where)
  return [
    ...Object.entries(phases).flatMap(([name, phase]) => [
      ...(phase?.next ?? []).flatMap((next) => unknown(next, `phase '${name}'.next`)),
      ...(phase?.deadline ? unknown(phase.deadline.moveTo, `phase '${name}'.deadline.moveTo`) : []),
    ]),
    ...rules.flatMap((rule) => [
      ...(rule.from === 'any' ? [] : rule.from.flatMap((from) => unknown(from, `rule '${rule.when}'.from`))),
      ...unknown(rule.moveTo, `rule '${rule.when}'.moveTo`),
    ]),
  ]
}

function renameProblems(known: readonly string[], renamed: unknown): string[] {
  if (!isObject(renamed)) return [`renamed must be an object such as { Old: 'New' }, got ${shown(renamed)}`]
  return Object.entries(renamed).flatMap(([from, to]) => {
    const problems: string[] = []
    if (known.includes(from))
      problems.push(`renamed '${from}' is still declared; drop the phase, or its entry in renamed`)
    if (from === '' || from.startsWith('$') || from.includes('\0'))
      problems.push(`renamed '${from}' can't be a phase's name`)
    return [...problems, ...unknownPhase(known, to, `renamed '${from}'`)]
  })
}

function unknownPhase(known: readonly string[], name: unknown, where: string): string[] {
  if (typeof name === 'string' && known.includes(name)) return []
  const said = typeof name === 'string' ? `'${name}'${meant(name, known)}` : shown(name)
  return [`${where} names an unknown phase ${said}; known: ${known.join(', ')}`]
}

function unreachable(phases: Phases, rules: readonly RuleNode[], renameTargets: readonly string[]): string[] {
  const reached = new Set([...entryPhases(phases), ...renameTargets])
  const edges = (name: string) => [
    ...(phases[name]?.next ?? []),
    ...(phases[name]?.deadline ? [phases[name]!.deadline!.moveTo] : []),
    ...rules.filter((rule) => ruleSources(phases, rule).includes(name)).map((rule) => rule.moveTo),
  ]
  for (const name of reached) for (const next of edges(name)) reached.add(next)
  return Object.keys(phases)
    .filter((name) => !reached.has(name))
    .map((name) => `phase '${name}' can't be reached: no entry, next, deadline or rule leads to it`)
}

function deadEnds(phases: Phases): string[] {
  const ending = new Set(Object.keys(phases).filter((name) => phases[name]?.rest || phases[name]?.final))
  for (let known = 0; known < ending.size; ) {
    known = ending.size
    for (const [name, phase] of Object.entries(phases)) {
      if (phase.next?.some((next) => ending.has(next))) ending.add(name)
    }
  }
  return Object.keys(phases)
    .filter((name) => !ending.has(name))
    .map((name) => `phase '${name}' has no way to an end: no resting or final phase can be reached from it`)
}

/**
 * The keys that a graph may not have, or lacks: a `deadLine` that was silently ignored would never come. Types catch these; this is for JavaScript
 * and for definitions that come from elsewhere.
 */
function keyProblems(phases: Readonly<Record<string, unknown>>, rules: unknown): string[] {
  const ofPhases = Object.entries(phases).flatMap(([name, phase]) => phaseProblems(name, phase))
  if (!Array.isArray(rules)) return [...ofPhases, `rules must be a list, got ${shown(rules)}`]
  return [...ofPhases, ...rules.flatMap((rule, i) => ruleProblems(rule, i))]
}

function phaseProblems(name: string, phase: unknown): string[] {
  const where = `phase '${name}'`
  if (!isObject(phase)) return [notAnObject(where, phase)]
  const { deadline, next } = phase
  const unclear = FLAGS.filter((key) => !['boolean', 'undefined'].includes(typeof phase[key]))
  return [
    ...(next === undefined || Array.isArray(next)
      ? []
      : [`${where}.next must be a list of phases, such as ['Created'], got ${shown(next)}`]),
    ...unclear.map((key) => `${where}.${key} must be true or false, got ${shown(phase[key])}`),
    ...unknownKeys(where, phase, PHASE_KEYS),
    ...(deadline === undefined ? [] : partProblems(`${where}.deadline`, deadline, DEADLINE_KEYS)),
  ]
}

/** The phases whose keys are right. They are checked further, even if others have problems. */
export const soundPhases = (phases: Phases): Phases =>
  Object.fromEntries(Object.entries(phases).filter(([name, phase]) => phaseProblems(name, phase).length === 0))

const soundRules = (rules: unknown): readonly RuleNode[] =>
  Array.isArray(rules) ? rules.filter((rule, i) => ruleProblems(rule, i).length === 0) : []

function ruleProblems(rule: unknown, index: number): string[] {
  const where = isObject(rule) && typeof rule['when'] === 'string' ? `rule '${rule['when']}'` : `rule ${index + 1}`
  const problems = partProblems(where, rule, RULE_KEYS)
  if (!isObject(rule) || problems.length > 0) return problems
  if (rule['from'] === 'any' || Array.isArray(rule['from'])) return []
  return [`${where}.from must be a list of phases or 'any', got ${shown(rule['from'])}`]
}

/** The problems of a deadline or a rule: all its keys but the optional `setState` must be there. */
function partProblems(where: string, part: unknown, known: readonly string[]): string[] {
  if (!isObject(part)) return [notAnObject(where, part)]
  const missing = known.filter((key) => key !== 'setState' && part[key] === undefined)
  const isRenamed = (key: string) => Object.keys(part).some((given) => isFormer(given, known) && FORMER[given] === key)
  return [
    ...unknownKeys(where, part, known),
    ...missing.filter((key) => !isRenamed(key)).map((key) => `${where} has no ${key}`),
  ]
}

export function unknownKeys(where: string, part: Record<string, unknown>, known: readonly string[]): string[] {
  return Object.keys(part)
    .filter((key) => !known.includes(key))
    .map((key) =>
      isFormer(key, known)
        ? `${where}: ${renamedNow(key, FORMER[key])}`
        : `${where} has an unknown key '${key}'${meant(key, known)}; known: ${known.join(', ')}`,
    )
}

/** The problems of a name with half a character in it: it would be stored as another name, and never be found again. */
export const cutProblems = (what: string, name: string): string[] =>
  name.isWellFormed()
    ? []
    : [
        `${what} must be of whole characters, got ${shown(name)}: half of one (a surrogate) can't be stored; was it cut?`,
      ]

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
export const notAnObject = (where: string, value: unknown) => `${where} must be an object, got ${shown(value)}`
