import { expect, test } from '@jest/globals'
import { countText } from '../../../src/operations/inspect/count-text.js'

test.each([
  [{ n: 0 }, '0'],
  [{ n: 9_999 }, '9,999'],
  [{ n: 10_000 }, '10,000'],
  [{ n: 10_000, more: true }, '10,000+'],
  [{ n: 12_000, about: true }, '~12,000'],
  [{ n: 1_234_567, about: true, more: true }, '~1,234,567+'],
] as const)('the count %j reads %s', (count, text) => {
  expect(countText(count)).toBe(text)
})
