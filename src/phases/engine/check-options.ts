import { nearest, requireNode } from '../../config/index.js'
import { DOORBELL_MODES } from '../../doorbell/index.js'
import { InvalidReplicaOptions } from '../errors.js'
import type { ReplicaOptions } from './replica-options.js'

interface Rule {
  readonly expected: string
  isMet(value: unknown): boolean
}

const ANYTHING: Rule = { expected: 'anything', isMet: () => true }
const A_DATABASE: Rule = {
  expected: "a database of the driver (client.db('shop'))",
  isMet: (value) => typeof (value as { collection?: unknown } | null)?.collection === 'function',
}
const whole = (least: number): Rule => ({
  expected: `a whole number from ${least}`,
  isMet: (value) => Number.isSafeInteger(value) && (value as number) >= least,
})
const MILLISECONDS: Rule = {
  expected: 'milliseconds from 0',
  isMet: (value) => typeof value === 'number' && value >= 0 && value <= 2 ** 31 - 1,
}
const oneOf = (...values: readonly string[]): Rule => ({
  expected: `one of ${values.join(', ')}`,
  isMet: (value) => values.includes(value as string),
})

const RULES: { readonly [option in keyof Required<ReplicaOptions>]: Rule } = {
  db: A_DATABASE,
  lifecycles: {
    expected: 'a list of lifecycles with their handlers (`lifecycle.handle({ ... })`)',
    isMet: (value) => Array.isArray(value) && value.every((one) => typeof one?.model === 'object'),
  },
  name: { expected: 'a text', isMet: (value) => typeof value === 'string' },
  renewalDb: A_DATABASE,
  ownerDb: A_DATABASE,
  doorbell: oneOf(...DOORBELL_MODES),
  doorbellDb: A_DATABASE,
  indexes: oneOf('create', 'check'),
  graceMs: MILLISECONDS,
  threads: whole(1),
  threadMemoryMb: whole(16),
  blockedAfterMs: MILLISECONDS,
  clockHoldMs: MILLISECONDS,
  alongside: {
    expected: 'a list of functions',
    isMet: (value) => Array.isArray(value) && value.every((one) => typeof one === 'function'),
  },
  logger: ANYTHING,
  observer: ANYTHING,
  clock: ANYTHING,
  random: ANYTHING,
  onBadPlan: oneOf('warn', 'refuse'),
  threadPool: ANYTHING,
  protocol: ANYTHING,
}
const NEEDED: readonly (keyof ReplicaOptions)[] = ['db', 'lifecycles']
const INTERNAL: readonly string[] = ['threadPool', 'protocol']

/** @throws InvalidReplicaOptions for unknown options, and for values with which a replica would stand still or do something else; UnsupportedNode */
export function checkOptions(options: ReplicaOptions): void {
  requireNode()
  const problems = Object.entries(options).flatMap(([option, value]) => {
    const rule = Object.hasOwn(RULES, option) ? RULES[option as keyof ReplicaOptions] : undefined
    if (!rule) {
      const known = Object.keys(RULES).filter((name) => !INTERNAL.includes(name))
      const near = nearest(option, known)
      return [`${option}: no such option${near ? ` (did you mean '${near}'?)` : ''}; known: ${known.join(', ')}`]
    }
    return value === undefined || rule.isMet(value) ? [] : [`${option}: expected ${rule.expected}, got ${shown(value)}`]
  })
  const missing = NEEDED.filter((option) => options[option] === undefined)
  problems.push(...missing.map((option) => `${option}: expected ${RULES[option].expected}, it is missing`))
  if (problems.length > 0) throw new InvalidReplicaOptions(problems)
}

function shown(value: unknown): string {
  if (typeof value === 'string') return `'${value}'`
  return typeof value === 'object' && value !== null ? 'an object' : String(value)
}
