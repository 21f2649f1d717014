import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { HISTORY_LIMIT, type HistoryEntry } from '../../src/lock/index.js'
import { historyWith, type NewHistoryEntry } from '../../src/lock/record/step-end.js'
import { useDatabase } from '../support/database.js'
import { PHASE, put, read, TERMS } from './fixture.js'

const waiting = (reason = 'not ready', more: Partial<NewHistoryEntry> = {}): NewHistoryEntry => ({
  outcome: 'wait',
  step: 's1',
  reason,
  by: 'r#1.1',
  ms: 3,
  ...more,
})

describe('progress.history', () => {
  const database = useDatabase()

  async function written(progress: unknown, ...entries: NewHistoryEntry[]): Promise<HistoryEntry[]> {
    const collection = database.db.collection('History')
    await put(collection, { _id: 'a', phase: PHASE, ...(progress === undefined ? {} : { progress }) })
    for (const entry of entries) {
      await collection.updateOne({ _id: 'a' as never }, [
        { $set: { progress: { $mergeObjects: ['$progress', { history: historyWith(TERMS, entry) }] } } },
      ])
    }
    return (await read(collection, 'a'))['progress'].history
  }
  const counts = (history: HistoryEntry[]) => history.map((entry) => entry.count)

  const before: [string, unknown][] = [
    ['no progress', undefined],
    ['progress null', null],
    ['no history', { a: 1 }],
    ['a string', { history: 'x' }],
    ['an object', { history: { a: 1 } }],
    ['[]', { history: [] }],
  ]
  test.each(before)(
    '%s: three alike waits and one with another reason are two entries, 3 and 1',
    async (_n, progress) => {
      const history = await written(
        progress,
        waiting(),
        waiting(),
        waiting('not ready', { by: 'r#9.1', ms: 7 }),
        waiting('x'),
      )
      expect(counts(history)).toEqual([3, 1])
      expect(history[0]).toMatchObject({
        outcome: 'wait',
        reason: 'not ready',
        by: 'r#9.1',
        ms: 7,
        from: PHASE,
        to: PHASE,
      })
    },
  )

  test('entries of another shape before it are kept, and never folded into', async () => {
    expect(await written({ history: [1] }, waiting(), waiting())).toMatchObject([1, { count: 2 }])
    expect(counts((await written({ history: [{ outcome: 'wait' }] }, waiting())).slice(1))).toEqual([1])
  })

  test('waits of another step, phase, reason or outcome are not alike', async () => {
    const others = [waiting(), waiting('y'), waiting('y', { step: null }), waiting('y', { outcome: 'unavailable' })]
    expect(counts(await written({}, ...others))).toEqual([1, 1, 1, 1])
    const moved = { history: [{ outcome: 'wait', step: 's1', reason: 'not ready', from: 'Elsewhere', count: 4 }] }
    expect(counts(await written(moved, waiting()))).toEqual([4, 1])
  })

  test('only waits are folded: an error or an again is an entry of its own each time', async () => {
    const again: NewHistoryEntry = { outcome: 'again', step: null, reason: null, by: 'x', ms: 1 }
    expect(counts(await written({}, again, again))).toEqual([1, 1])
  })

  test('reasons are text, never expressions', async () => {
    const history = await written({ secret: 'no' }, waiting('$progress.secret'), waiting('$progress.secret'))
    expect(history).toMatchObject([{ reason: '$progress.secret', count: 2 }])
  })

  test('the newest 20 are kept, also of one that was longer', async () => {
    const long: Document[] = Array.from({ length: 25 }, (_, n) => ({ outcome: 'again', n }))
    const appended = await written({ history: long }, waiting())
    expect(appended).toHaveLength(HISTORY_LIMIT)
    expect(appended[0]).toMatchObject({ n: 6 })
    const folded = await written({ history: long }, waiting(), waiting(), waiting())
    expect(folded).toHaveLength(HISTORY_LIMIT)
    expect(folded.at(-1)).toMatchObject({ count: 3 })
  })
})
