import { meant } from '../../options/index.js'

const PHASE_KEYS = ['next', 'rest', 'final', 'entry', 'deadline', 'keepFor']
const DEADLINE_KEYS = ['after', 'goTo', 'setState']
const RULE_KEYS = ['when', 'from', 'goTo', 'setState']

/**
 * Keys that a graph may not have, or lacks: a `deadLine` that was silently ignored would never come. Types catch these; this is for
 * JavaScript and for definitions that come from elsewhere.
 */
export function keyProblems(phases: Readonly<Record<string, unknown>>, rules: unknown): string[] {
  const ofPhases = Object.entries(phases).flatMap(([name, phase]) => {
    const where = `phase '${name}'`
    if (!isObject(phase)) return [notAnObject(where, phase)]
    const { deadline } = phase
    if (deadline === undefined) return unknownKeys(where, phase, PHASE_KEYS)
    return [...unknownKeys(where, phase, PHASE_KEYS), ...partProblems(`${where}.deadline`, deadline, DEADLINE_KEYS)]
  })
  if (!Array.isArray(rules)) return [...ofPhases, `rules must be a list, got ${shown(rules)}`]
  return [...ofPhases, ...rules.flatMap((rule, i) => ruleProblems(rule, i))]
}

function ruleProblems(rule: unknown, index: number): string[] {
  const where = isObject(rule) && typeof rule['when'] === 'string' ? `rule '${rule['when']}'` : `rule ${index + 1}`
  const problems = partProblems(where, rule, RULE_KEYS)
  if (!isObject(rule) || problems.length > 0) return problems
  if (rule['from'] === 'any' || Array.isArray(rule['from'])) return []
  return [`${where}.from must be a list of phases or 'any', got ${shown(rule['from'])}`]
}

/** All keys but the optional `setState` have to be there. */
function partProblems(where: string, part: unknown, known: readonly string[]): string[] {
  if (!isObject(part)) return [notAnObject(where, part)]
  const missing = known.filter((key) => key !== 'setState' && part[key] === undefined)
  return [...unknownKeys(where, part, known), ...missing.map((key) => `${where} has no ${key}`)]
}

function unknownKeys(where: string, part: Record<string, unknown>, known: readonly string[]): string[] {
  return Object.keys(part)
    .filter((key) => !known.includes(key))
    .map((key) => `${where} has an unknown key '${key}'${meant(key, known)}; known: ${known.join(', ')}`)
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const notAnObject = (where: string, value: unknown) => `${where} must be an object, got ${shown(value)}`
const shown = (value: unknown) => JSON.stringify(value) ?? String(value)
