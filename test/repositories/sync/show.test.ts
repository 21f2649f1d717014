import { expect, test } from '@jest/globals'
import { progressOf } from '../../../packages/repositories/src/sync/show.js'

const since = new Date('2026-11-26T12:00:00Z')
const after = (seconds: number) => new Date(since.getTime() + seconds * 1_000)

test('rate and time left are those of the files that are done', () => {
  const some = { filesIndexed: 400, filesToIndex: 2_000 }
  expect(progressOf(some, since, after(8))).toEqual({ filesPerSecond: 50, secondsLeft: 32 })
  // A pause counts: the model was away for half a minute.
  expect(progressOf(some, since, after(40))).toEqual({ filesPerSecond: 10, secondsLeft: 160 })
  expect(progressOf({ filesIndexed: 2_000, filesToIndex: 2_000 }, since, after(20))).toEqual({
    filesPerSecond: 100,
    secondsLeft: 0,
  })
})

test('before a batch is done, and where the time says nothing, there is no rate', () => {
  expect(progressOf({ filesIndexed: 0, filesToIndex: 2_000 }, since, after(8))).toEqual({})
  expect(progressOf({}, since, after(8))).toEqual({})
  const some = { filesIndexed: 400, filesToIndex: 2_000 }
  expect(progressOf(some, undefined, after(8))).toEqual({})
  expect(progressOf(some, since, after(0))).toEqual({})
  // The server's clock was set back since then.
  expect(progressOf(some, since, after(-60))).toEqual({})
  // A document that was changed by hand.
  expect(progressOf({ filesIndexed: 9, filesToIndex: 3 }, since, after(3))).toEqual({
    filesPerSecond: 3,
    secondsLeft: 0,
  })
})
