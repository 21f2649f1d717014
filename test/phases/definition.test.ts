import { describe, expect, test } from '@jest/globals'
import { InvalidLifecycle, lifecycleOf } from '../../src/index.js'

type Doc = { _id: string; state?: string }

interface Definition {
  handle(handlers: object): unknown
  OnPhase(phase: string): (proto: object, key: string) => void
}

/** Defines as a JavaScript user would: nothing is checked by types. */
const define = (more: object) =>
  (lifecycleOf<Doc>() as unknown as { define(spec: object): Definition }).define({
    name: 'thing',
    collection: 'Thing',
    phases: { A: { next: ['B'] }, B: { final: true } },
    ...more,
  })

const problemsOf = (make: () => unknown): readonly string[] => {
  try {
    make()
  } catch (error) {
    if (error instanceof InvalidLifecycle) return error.problems
    throw error
  }
  return []
}

const circular: { self?: unknown } = {}
circular.self = circular
const bare = Object.create(null)

describe('a lifecycle is checked when it is defined', () => {
  const cases: [string, object, RegExp][] = [
    [
      'a next that is not declared',
      { phases: { A: { next: ['C'] }, B: { final: true } } },
      /'A'.next names an unknown phase 'C'; known: A, B/,
    ],
    [
      'a typo, with what was meant',
      { phases: { A: { next: ['Gonne'] }, Gone: { final: true } } },
      /did you mean 'Gone'\?/,
    ],
    [
      'a phase that nothing leads to',
      { phases: { A: { next: ['B'] }, B: { final: true }, C: { next: ['B'] } } },
      /'C' can't be reached/,
    ],
    [
      'a working phase with no way to an end',
      { phases: { A: { next: ['B', 'C'] }, B: { next: ['B'] }, C: { final: true } } },
      /'B' has no way to an end/,
    ],
    [
      'a phase of two kinds',
      { phases: { A: { next: ['B'], rest: true }, B: { final: true } } },
      /phase 'A' has next and rest, which exclude each other: a phase works .* keep one$/,
    ],
    [
      'a key of a phase that does not exist',
      { phases: { A: { next: ['B'], deadLine: { after: '1m', moveTo: 'B' } }, B: { final: true } } },
      /phase 'A' has an unknown key 'deadLine' \(did you mean 'deadline'\?\); known: next, rest, final, entry/,
    ],
    [
      'a key of a deadline that does not exist, and the one that is missing',
      { phases: { A: { next: ['B'], deadline: { afer: '1m', moveTo: 'B' } }, B: { final: true } } },
      /'A'\.deadline has an unknown key 'afer' \(did you mean 'after'\?\); .*\n.*'A'\.deadline has no after/,
    ],
    [
      'a key of a rule that does not exist',
      { rules: [{ when: 'Deleted', form: ['A'], moveTo: 'B' }] },
      /rule 'Deleted' has an unknown key 'form' \(did you mean 'from'\?\); .*\n.*rule 'Deleted' has no from/,
    ],
    [
      'a from that is no list',
      { rules: [{ when: 'Deleted', from: 'A', moveTo: 'B' }] },
      /'Deleted'\.from must be a list/,
    ],
    [
      'a phase that is no object',
      { phases: { A: 'next B', B: { final: true } } },
      /'A' must be an object, got "next B"/,
    ],
    [
      "a rule's former goTo",
      { rules: [{ when: 'Deleted', from: ['A'], goTo: 'B' }] },
      /^rule 'Deleted': expected moveTo, got goTo: it is called moveTo now$/,
    ],
    [
      "a deadline's former goTo",
      { phases: { A: { next: ['B'], deadline: { after: '1m', goTo: 'B' } }, B: { final: true } } },
      /^phase 'A'\.deadline: expected moveTo, got goTo: it is called moveTo now$/,
    ],
    ['rules that are no list', { rules: { Deleted: 'B' } }, /rules must be a list, got {"Deleted":"B"}/],
    ['no phases', { phases: {} }, /declares no phases/],
    [
      'a rule from an unknown phase',
      { rules: [{ when: 'Deleted', from: ['Q'], moveTo: 'B' }] },
      /rule 'Deleted'.from names an unknown phase 'Q'/,
    ],
    [
      'a deadline to nowhere',
      { phases: { A: { next: ['B'], deadline: { after: '1m', moveTo: 'Z' } }, B: { final: true } } },
      /deadline.moveTo names an unknown phase 'Z'/,
    ],
    [
      'a deadline without a unit',
      { phases: { A: { next: ['B'], deadline: { after: '60', moveTo: 'B' } }, B: { final: true } } },
      /'A'.deadline.after: expected a duration such as/,
    ],
    [
      'an unknown setting',
      { locktimeout: '30s' },
      /unknown setting 'locktimeout' \(did you mean 'lockTimeout'\?\); known: .*lockTimeout/,
    ],
    [
      'a stepTimeout that is a number',
      { stepTimeout: 5 },
      /stepTimeout: expected a duration from 100ms to 24h, such as .*, got 5; add the unit/,
    ],
    [
      'a lockTimeout without a unit',
      { lockTimeout: '30' },
      /lockTimeout: expected a duration from 1s to 24h, such as .* got '30'/,
    ],
    [
      'a lockTimeout out of range',
      { lockTimeout: '10ms' },
      /lockTimeout: expected a duration from 1s to 24h, such as .*, got '10ms'/,
    ],
    ['a concurrency of zero', { concurrency: 0 }, /concurrency: expected a whole number from 1 to 10000/],
    [
      'attempts that are no number',
      { maxAttempts: 'many' },
      /maxAttempts: expected a whole number from 1 to 1000, got 'many'/,
    ],
    [
      'progress under a reserved name',
      { fields: { progress: 'phase' } },
      /fields.progress: expected a name other than/,
    ],
    [
      "a collection that there can't be",
      { collection: '$orders' },
      /collection must be a collection's name without \$, got "\$orders"/,
    ],
    ["one of Phaselock's own", { collection: 'phaselock.audit' }, /collection must be yours, got 'phaselock.audit'/],
    [
      'a next phase instead of a list',
      { phases: { A: { next: 'B' }, B: { rest: true } } },
      /phase 'A'.next must be a list of phases, such as \['Created'\], got "B"/,
    ],
    [
      'a name that was cut in a character',
      { name: 'order \ud83d' },
      /name must be of whole characters, got "order \\ud83d"/,
    ],
    ['a collection’s the same', { collection: '\udca9' }, /collection must be of whole characters, .* was it cut\?/],
    [
      'a phase’s the same',
      { phases: { 'A\ud83d': { next: ['B'] }, B: { final: true } } },
      /a phase's name must be of whole characters, got "A\\ud83d"/,
    ],
    ['a name that is a bigint', { name: 5n }, /name must be a non-empty string, got 5/],
    [
      'a name that is a symbol',
      { name: Symbol('a'), maxActive: 1 },
      /name must be a non-empty string, got Symbol\(a\)/,
    ],
    ['a name that contains itself', { name: circular }, /name must be a non-empty string, got \[object Object\]/],
    ['a collection without a prototype', { collection: bare }, /collection must be a non-empty string, got \{\}/],
    ['renamed that contains itself', { renamed: [circular] }, /renamed must be an object such as .*, got \[object/],
    [
      'a next that is a symbol',
      { phases: { A: { next: [Symbol('a')] }, B: { final: true } } },
      /'A'\.next names an unknown phase Symbol\(a\); known: A, B/,
    ],
    [
      'an entry that is neither true nor false',
      { phases: { A: { next: ['B'], entry: 'no' }, B: { final: true } } },
      /'A'\.entry must be true or false, got "no"/,
    ],
    [
      'rest and final the same',
      { phases: { A: { rest: 'no' }, B: { final: 1 } } },
      /'A'\.rest must be true or false, got "no"\n.*'B'\.final must be true or false, got 1/,
    ],
    ['a collection that is missing', { collection: undefined }, /collection must be a non-empty string/],
    [
      'a final phase with a deadline',
      { phases: { A: { next: ['B'] }, B: { final: true, deadline: { after: '1m', moveTo: 'A' } } } },
      /is final and can't have a deadline/,
    ],
    ['a back-off out of range', { backOff: { share: 2 } }, /backOff.share: expected a share from 0.01 to 1/],
    ['a back-off of an unknown kind', { backOff: { first: '1s' } }, /unknown setting 'backOff.first'/],
    [
      'a first error pause beyond the longest',
      { backOff: { firstError: '10m' } },
      /backOff: expected firstError to be no longer than longestError/,
    ],
  ]
  test.each(cases)('%s', (_name, spec, problem) => {
    expect(problemsOf(() => define(spec)).join('\n')).toMatch(problem)
  })

  test('all problems are listed at once', () => {
    const problems = problemsOf(() => define({ lockTimeout: '1', maxAttempts: -1, phases: { A: { next: ['Q'] } } }))
    expect(problems).toHaveLength(3)
  })

  test('a wrong value hides no problem of the graph, and a wrong key none of another phase', () => {
    const phases = {
      A: { next: ['B', 'Q'], deadline: { after: '10 minutes', moveTo: 'B' } },
      B: { rest: true, next: ['A'], limits: 'many' },
      C: { final: 'yes', deadLine: {}, next: 5 },
      D: { final: true, keepFor: 'a day', entry: true },
      E: 'e',
    }
    const rules = [{ when: 'Gone', from: ['A'], moveTo: 'Z' }, { from: 'any', moveTo: 'B' }, 7]
    const more = { rules, renamed: { A: 'B', Old: 'N' }, lockTimeout: 5, each: 2, callbackTimeout: '1s', child: true }
    const problems = problemsOf(() => define({ phases, ...more }))
    for (const expected of [
      /^phase 'A'.next names an unknown phase 'Q'/,
      /^phase 'A'.deadline.after: .*10 minutes/,
      /^phase 'B' has next and rest, which exclude each other/,
      /^phase 'C'.next must be a list of phases/,
      /^phase 'C'.final must be true or false/,
      /^phase 'C' has an unknown key 'deadLine'/,
      /^phase 'D' is final and can't be an entry/,
      /^phase 'D'.keepFor: .*a day/,
      /^phase 'E' must be an object/,
      /^rule 'Gone'.moveTo names an unknown phase 'Z'/,
      /^rule 2 has no when/,
      /^rule 3 must be an object/,
      /^renamed 'A' is still declared/,
      /^renamed 'Old' names an unknown phase 'N'/,
      /^lockTimeout: expected a duration/,
      /^expected limitBy and each together/,
      /^callbackTimeout: expected callbacks too/,
    ])
      expect(problems).toContainEqual(expect.stringMatching(expected))
    expect(new Set(problems).size).toBe(problems.length)
    // Ways are followed only where names are right.
    expect(problems.join('\n')).not.toMatch(/can't be reached|no way to an end/)
  })

  test('a wrong duration and a phase that nothing leads to are told at once', () => {
    const phases = {
      A: { next: ['B'], deadline: { after: '10 minutes', moveTo: 'B' } },
      B: { rest: true },
      C: { rest: true },
    }
    expect(problemsOf(() => define({ phases }))).toEqual([
      expect.stringContaining("phase 'C' can't be reached"),
      expect.stringContaining("phase 'A'.deadline.after: "),
    ])
  })

  test('a phase reached by a rule or a deadline only is fine, an entry may be named', () => {
    const phases = {
      A: { next: ['B'], deadline: { after: '1m', moveTo: 'D' } },
      B: { rest: true },
      C: { next: ['B'], entry: true },
      D: { final: true },
    }
    // A is no entry any more once another is marked, and nothing leads to it.
    expect(problemsOf(() => define({ phases }))[0]).toMatch(/'A' can't be reached/)
    expect(problemsOf(() => define({ phases: { ...phases, A: { ...phases.A, entry: true } } }))).toEqual([])
  })

  test('handlers: each working phase has one, no other phase has', () => {
    const handler = async () => {}
    expect(problemsOf(() => define({}).handle({}))).toEqual([
      "working phase 'A' has no handler; add A(doc, step) { ... } to handle({...})",
    ])
    expect(problemsOf(() => define({}).handle({ A: handler, B: handler }))).toEqual([
      "handler 'B' isn't for a working phase; working: A",
    ])
    const phases = { Creating: { next: ['B'] }, B: { rest: true } }
    expect(problemsOf(() => define({ phases }).handle({ Creating: handler, Creatin: handler }))).toEqual([
      "handler 'Creatin' isn't for a working phase (did you mean 'Creating'?); working: Creating",
    ])
    expect(problemsOf(() => define({ phases }).OnPhase('Creatin')({}, 'creating'))).toEqual([
      "OnPhase('Creatin'): expected a working phase (Creating) (did you mean 'Creating'?)",
    ])
  })

  test('called without what they take', () => {
    const expected = 'expected an object with name, collection and phases, got'
    expect(problemsOf(() => lifecycleOf().define(undefined as never))).toEqual([`${expected} undefined`])
    expect(problemsOf(() => lifecycleOf().define(5 as never))).toEqual([`${expected} 5`])
    expect(problemsOf(() => define({}).handle(undefined as never))).toEqual([
      'handle: expected an object with handlers by phase, got undefined',
    ])
    expect(problemsOf(() => define({}).OnPhase(undefined as never)({}, 'a'))).toEqual([
      'OnPhase(undefined): expected a working phase (A)',
    ])
  })
})
