import { expect, test } from '@jest/globals'
import { Mutex } from '../../src/concurrency/index.js'
import { gate } from '../support/thing.js'

test('works run one at a time, in the order of the calls, also after one that fails', async () => {
  const mutex = new Mutex()
  const [first, second] = [gate(), gate()]
  const seen: string[] = []
  const failing = mutex.run(async () => {
    seen.push('first begins')
    await first.wait
    seen.push('first fails')
    throw new Error('odd')
  })
  const answered = mutex.run(async () => {
    seen.push('second begins')
    await second.wait
    return 2
  })
  const all = mutex.idle().then(() => seen.push('idle'))
  await new Promise((resolve) => setImmediate(resolve))
  expect(seen).toEqual(['first begins'])
  first.open()
  await expect(failing).rejects.toThrow('odd')
  second.open()
  expect(await answered).toBe(2)
  await all
  expect(seen).toEqual(['first begins', 'first fails', 'second begins', 'idle'])
  await mutex.idle()
})
