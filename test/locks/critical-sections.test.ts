import { expect, test } from '@jest/globals'
import { overlaps, tooEarly } from './critical-sections.js'

test('what the fights are judged by finds what is wrong', () => {
  const enters = (who: string, more: object = {}) => ({ lock: 'x', who, enters: true, ...more })
  const leaves = (who: string) => ({ lock: 'x', who, enters: false })
  expect(
    overlaps([enters('a', { fence: 1 }), leaves('a'), enters('b'), leaves('b'), enters('a', { fence: 2 })]),
  ).toEqual([])
  expect(overlaps([enters('a'), enters('b')])).toEqual(['line 2: b enters x while a is within'])
  expect(overlaps([leaves('a')])).toEqual(['line 1: a leaves x, where nobody is'])
  expect(overlaps([enters('a', { fence: 2 }), leaves('a'), enters('b', { fence: 2 })])).toEqual([
    'line 3: fence 2 of x comes after 2',
  ])
  const [first, second] = [enters('a', { since: 100, entered: 101 }), enters('b', { since: 103, entered: 104 })]
  expect(tooEarly([first, leaves('a'), second], 4)).toEqual([])
  expect(tooEarly([first, leaves('a'), second], 5)).toEqual(['b has x at 104, a had it at 100'])
})
