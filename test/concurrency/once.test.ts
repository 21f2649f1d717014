import { expect, test } from '@jest/globals'
import { once } from '../../src/concurrency/index.js'

test('calls share one work, and its result; after a failure the next call tries again', async () => {
  let calls = 0
  const done = once(async () => {
    calls += 1
    if (calls === 1) throw new Error('away')
    return calls
  })
  const first = await Promise.allSettled([done(), done()])
  expect(first.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  expect(await Promise.all([done(), done()])).toEqual([2, 2])
  expect(await done()).toBe(2)
})
