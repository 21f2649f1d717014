import { describe, expect, test } from '@jest/globals'
import { operationNamed, undoOperation } from '../../src/operations/index.js'
import { backDate } from '../../src/testing/index.js'
import { useDatabase } from '../support/database.js'
import { gate } from '../support/thing.js'
import { BulkWorld, many, PARKED } from './bulk-world.js'

describe('what is kept for an undo', () => {
  const database = useDatabase()

  test('is left alone by a process that stood still while another has done its page', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(1, { ...PARKED, n: 1 }))
    const edit = (n: number) => w.things.updateOne({}, { $set: { n } })
    const { _id } = await w.begin('redo', { all: true }, { options: { set: { n: 5 } } })
    const [standsStill, goesOn] = [gate(), gate()]
    const keeping = w.keeping((count) => {
      if (count === 0) return // what all were first
      standsStill.open()
      return goesOn.wait
    })
    // Somebody edits the document between its reading and the write, so that it is kept anew.
    const worker = w.worker(w.writingThings((count) => (count === 0 ? edit(2) : undefined), keeping))
    const late = worker.runOnce()
    await standsStill.wait
    await edit(3)
    await backDate(database.db.collection('phaselock.operations'), 60_000)
    expect(await w.finish(_id)).toMatchObject({ condition: 'Done', counts: { done: 1 } })
    goesOn.open()
    await late
    await worker.stop()
    expect(await w.things.distinct('n')).toEqual([5])
    const undo = await undoOperation(w.system, _id, { by: 'ana' })
    expect(await w.finish(undo._id)).toMatchObject({ counts: { done: 1 } })
    expect(await w.things.distinct('n')).toEqual([3])
    expect(await operationNamed(w.system, _id)).toMatchObject({ counts: { seen: 1, done: 1 } })
  })
})
