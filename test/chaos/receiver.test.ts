import { expect, test } from '@jest/globals'
import { Receiver, Refused } from '../../chaos/faults/receiver.ts'
import { useDatabase } from '../support/database.js'

const database = useDatabase()

test('the receiver refuses older fences, and finds what comes too late with a newer one', async () => {
  const receiver = new Receiver(database.db)
  await receiver.accept('a/1', 10, 100)
  await receiver.accept('a/1', 10, 100) // sent again
  await receiver.accept('a/1', 12, 101)
  await expect(receiver.accept('a/1', 11, 100)).rejects.toThrow(Refused)
  await receiver.accept('a/2', 1, 5)
  expect(await receiver.totals()).toEqual({ outOfOrder: 0, refused: 1 })
  await receiver.accept('a/1', 13, 100)
  expect(await receiver.totals()).toEqual({ outOfOrder: 1, refused: 1 })
})

test('an effect that two bring in at once is accepted from both, or refused from the older', async () => {
  const receiver = new Receiver(database.db)
  const fences = Array.from({ length: 30 }, (_, i) => i)
  await Promise.allSettled(fences.map((fence) => receiver.accept('a/1', fence, 1)))
  await expect(receiver.accept('a/1', 28, 1)).rejects.toThrow(Refused)
  expect((await receiver.totals()).outOfOrder).toBe(0)
})
