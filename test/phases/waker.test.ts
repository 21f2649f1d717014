import { describe, expect, test } from '@jest/globals'
import { isDue } from '../../src/lock/index.js'
import { Waker } from '../../src/phases/engine/wake/waker.js'
import { systemClock } from '../../src/time/index.js'
import { ago, interrupted, lockedCollection, put, read, TERMS } from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { thing } from '../support/thing.js'

const FOR_AN_HOUR = ago(-3_600_000)

describe('a wake', () => {
  const database = useDatabase()

  test('ends no sleep that began after the look: the step before it has seen what the wake is for', async () => {
    const collection = await lockedCollection(database.db)
    const asleep = { phase: 'Creating', lockedAt: FOR_AN_HOUR, fence: 1, progress: { waitingFor: 'the world' } }
    await put(collection, { _id: 'a', ...asleep }, { _id: 'b', ...asleep })
    const woken: number[] = []
    const steppedMeanwhile = () => put(collection, { _id: 'a', ...asleep, fence: 2 })
    const waker = new Waker({
      model: thing.model,
      collection: interrupted(collection, 'updateMany', { before: steppedMeanwhile }),
      ...{ isOwn: () => true, waitedFor: () => undefined },
      terms: () => TERMS,
      clock: systemClock,
      serverNow: () => systemClock.now(),
      onWoken: (_phases, { count }) => void woken.push(count),
      onError: (error) => {
        throw error
      },
    })
    waker.wake(['a', 'b'])
    await eventually(() => woken.length > 0)
    await waker.stop()
    expect(woken).toEqual([1])
    expect(await read(collection, 'a')).toMatchObject({ fence: 2 })
    expect((await collection.find({ $expr: isDue(TERMS) }).toArray()).map(({ _id }) => String(_id))).toEqual(['b'])
  })

  test.each(['before', 'after'])(
    'for news that a document has heard does not swallow another reason, be that %s it or later',
    async (when) => {
      const collection = await lockedCollection(database.db)
      const heard = { source: 'pods', version: 5, at: new Date() }
      await put(collection, { _id: 'a', phase: 'Creating', lockedAt: FOR_AN_HOUR, fence: 1, progress: { heard } })
      const waker = new Waker({
        ...{ model: thing.model, collection, terms: () => TERMS, clock: systemClock },
        ...{ isOwn: () => true, waitedFor: () => undefined },
        serverNow: () => systemClock.now(),
        onWoken: () => undefined,
        onError: (error) => {
          throw error
        },
      })
      const news = () => waker.wake(['a'], { source: 'pods', version: 5 })
      const other = () => waker.wakeIf('a', 'its child', async () => true)
      for (const ask of when === 'before' ? [other, news] : [news, other]) ask()
      await waker.settled()
      await waker.stop()
      expect(waker.woken).toBe(1)
    },
  )
})
