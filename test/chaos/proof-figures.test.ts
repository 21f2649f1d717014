import { describe, expect, test } from '@jest/globals'
import { figuresOf } from '../../chaos/proof/figures.ts'
import type { FaultEntry, LedgerEntry, StepEntry } from '../../chaos/proof/ledger.ts'
import { Screen } from '../../chaos/proof/screen.ts'
import { stepNumber, UnknownPhase } from '../../chaos/proof/step-order.ts'
import { apiGatewayDefinitions } from '../../src/tasks/index.js'

const at = (ms: number) => new Date(Date.UTC(2030, 0, 1) + ms)
const step = (kind: StepEntry['kind'], ms: number, more: Partial<StepEntry> = {}): StepEntry => ({
  _id: `${kind} ${ms}`,
  kind,
  document: 'api-gateway/1',
  number: 1,
  step: 'Creating',
  fence: 1,
  leaseLeftMs: 4_000,
  at: at(ms),
  replica: 'a',
  ...more,
})
const fault = (name: FaultEntry['fault'], ms: number, held: FaultEntry['held']): FaultEntry => ({
  _id: `fault ${name}`,
  kind: 'fault',
  fault: name,
  replica: 'a',
  at: at(ms),
  held,
})
const expected = new Map([['api-gateway/1', 'moveTo Started']])
const figures = (...ledger: LedgerEntry[]) => figuresOf(ledger, expected, 4_000)

describe("the demo's figures", () => {
  const done = [step('begin', 10, { fence: 9, number: 9 }), step('end', 20, { fence: 9, outcome: 'moveTo Started' })]

  test('nothing is off in a life of steps that follow each other, with a wait and a step that a crash has repeated', () => {
    const ledger = [
      step('begin', 0, { fence: 1, number: 1 }),
      step('begin', 5_000, { fence: 2, number: 1, replica: 'b' }),
      step('end', 5_100, { fence: 2, number: 1, replica: 'b', outcome: 'again' }),
      step('begin', 5_200, { fence: 3, number: 2 }),
      step('end', 5_300, { fence: 3, number: 2, outcome: 'wait' }),
      step('begin', 5_400, { fence: 4, number: 2 }),
      step('end', 5_500, { fence: 4, number: 2, outcome: 'moveTo Started' }),
    ]
    expect(figures(...ledger)).toMatchObject({ lost: 0, repeated: 0, overlapping: 0, stepsBegun: 4, examples: [] })
  })

  test.each([
    ['it has no entry at all', []],
    ['its last step has only begun', [step('begin', 0)]],
    ['its last step ended somewhere on the way', [step('begin', 0), step('end', 10, { outcome: 'again' })]],
    [
      'an earlier holder ended what the last one began',
      [step('begin', 0), step('end', 10, { outcome: 'moveTo Started' }), step('begin', 20, { fence: 2, replica: 'b' })],
    ],
  ])('a document is lost when %s', (_, ledger) => {
    expect(figures(...ledger)).toMatchObject({ lost: 1, examples: [expect.stringContaining('lost: api-gateway/1')] })
  })

  test('a step is repeated when it begins after a later one of its document had begun, not of another', () => {
    const later = step('begin', 0, { fence: 2, number: 5 })
    const earlier = step('begin', 1, { fence: 3, number: 4 })
    expect(figures(later, earlier, ...done).repeated).toBe(1)
    expect(figures(later, { ...earlier, document: 'api-gateway/2' }, ...done).repeated).toBe(0)
    expect(figures(later, { ...earlier, kind: 'late' }, ...done).repeated).toBe(0)
  })

  test('an entry overlaps when its lease has time left though a step with a higher fence had begun', () => {
    const next = step('begin', 100, { fence: 2, replica: 'b' })
    const late = step('end', 101, { fence: 1 })
    expect(figures(step('begin', 0), next, late).overlapping).toBe(1)
    expect(figures(step('begin', 0), next, { ...late, leaseLeftMs: 0 }).overlapping).toBe(0)
    expect(figures(step('begin', 0), { ...late, at: at(99) }, next).overlapping).toBe(0)
  })

  test('recovery counts to the next begin of the last document held at the kill; none: never', () => {
    const held = [
      { document: 'api-gateway/1', fence: 1 },
      { document: 'api-gateway/2', fence: 5 },
    ]
    const kill = fault('kill', 1_000, held)
    const first = step('begin', 5_200, { fence: 2 })
    const second = step('begin', 5_900, { fence: 6, document: 'api-gateway/2' })
    expect(figures(kill, first, second)).toMatchObject({ recoverySeconds: 4.9, leasesAtKill: 2 })
    expect(figures(kill, first)).toMatchObject({ recoverySeconds: null })
    expect(figures()).toMatchObject({ recoverySeconds: null, handoverSeconds: null })
  })

  test('handover counts to the next begin of a document whose step had not begun', () => {
    const held = ['1', '2', '3'].map((id) => ({ document: `api-gateway/${id}`, fence: 1 }))
    const ledger = [
      step('begin', 0, { document: 'api-gateway/1' }),
      fault('terminate', 1_000, held),
      step('begin', 1_050, { document: 'api-gateway/1', fence: 2 }),
      step('begin', 1_300, { document: 'api-gateway/2', fence: 2 }),
      step('begin', 2_100, { document: 'api-gateway/3', fence: 2 }),
    ]
    expect(figures(...ledger)).toMatchObject({
      notBegunAtTerminate: 2,
      handoverSeconds: 0.3,
      handoverOfAllSeconds: 1.1,
    })
  })

  test('a step longer than the lock timeout counts when it still had its lease at its end', () => {
    const long = [step('begin', 0), step('end', 4_001, { outcome: 'again', leaseLeftMs: 1 })]
    expect(figures(...long).stepsLongerThanLockTimeout).toBe(1)
    expect(figures(long[0]!, { ...long[1]!, leaseLeftMs: 0 }).stepsLongerThanLockTimeout).toBe(0)
    expect(figures(long[0]!, { ...long[1]!, at: at(4_000) }).stepsLongerThanLockTimeout).toBe(0)
  })
})

describe("a step's number", () => {
  test('every working phase of the lifecycles has one, growing along the way of a gateway', () => {
    for (const { name, model } of apiGatewayDefinitions().all) {
      const working = [...model.phases.values()].filter(({ kind }) => kind === 'working')
      for (const { name: phase } of working) expect(stepNumber(name, phase, undefined)).toBeGreaterThanOrEqual(0)
    }
    const way = [
      ['Creating', undefined],
      ['Creating', 'stage'],
      ['Creating', 'domain'],
      ['Creating', 'children'],
      ['Starting', undefined],
      ['Starting', 'triggers'],
      ['Deleting', undefined],
      ['Deleting', 'functions'],
      ['Deleting', 'stages'],
      ['Deleting', 'domains'],
      ['Deleting', 'database'],
    ] as const
    const numbers = way.map(([phase, name]) => stepNumber('api-gateway', phase, name))
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b))
  })

  test('a name of another phase counts as the first step, as its handler takes it; an unknown phase is an error', () => {
    expect(stepNumber('api-gateway', 'Deleting', 'children')).toBe(stepNumber('api-gateway', 'Deleting', undefined))
    expect(() => stepNumber('api-gateway', 'Resting', undefined)).toThrow(UnknownPhase)
  })
})

describe('the screen', () => {
  const shown = (isTTY: boolean) => {
    const lines: string[] = []
    const out = { isTTY, columns: 60, write: (more: string) => void lines.push(more) }
    const screen = new Screen(out as never)
    screen.stage('inserted')
    for (const done of [0, 5, 10, 11]) screen.progress(done, 10)
    screen.end()
    return lines.join('')
  }

  test('has a bar below the lines on a terminal, also when more is done than was known, and no bar elsewhere', () => {
    expect(shown(true)).toContain('░'.repeat(24))
    expect(shown(true)).toContain(`${'█'.repeat(24)} 11/10`)
    expect(shown(false)).toMatch(/^ +0\.0 s {2}inserted\n$/)
  })
})
