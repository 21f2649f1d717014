import { expect, test } from '@jest/globals'
import { logTransitions } from '../../src/cli/start/transitions.js'
import { type StepEnded, silentLogger } from '../../src/index.js'

test('a line for each move to another phase, twenty a second; the rest is counted', () => {
  let nowMs = 0
  const lines: string[] = []
  const logger = { ...silentLogger, info: (message: string) => void lines.push(message) }
  const { stepEnded } = logTransitions(logger, { now: () => new Date(), monotonicMs: () => nowMs })
  const step = { lifecycle: 'order', phase: 'Creating', step: null, reason: null, ms: 3 } as const
  const end = (id: string, to: string) => stepEnded!({ ...step, id, to, outcome: 'moveTo' } satisfies StepEnded)
  end('o0', 'Creating')
  expect(lines).toEqual([])
  for (let n = 1; n <= 30; n += 1) end(`o${n}`, 'Created')
  expect(lines).toHaveLength(20)
  expect(lines[0]).toBe('order o1: Creating -> Created')
  nowMs = 1_000
  end('o31', 'Created')
  expect(lines.slice(20)).toEqual([
    '10 more documents moved; a second shows 20 of them',
    'order o31: Creating -> Created',
  ])
})
