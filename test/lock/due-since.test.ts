import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { PARKED_AT } from '../../src/lock/index.js'
import { answerQuestion, countPhases, unparkDocument, wakeDocument } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, thing, things, thingWith } from '../support/thing.js'

describe('a document that is due because somebody says so', () => {
  const database = useDatabase()
  const system = () => ({ db: database.db, models: [thing.model], doorbell: 'off' as const })
  const NINE_DAYS_AGO = new Date(Date.now() - 777_600_000)
  const question = {
    id: 'q',
    question: 'Go on?',
    options: [],
    to: [],
    onTimeout: null,
    askedAt: NINE_DAYS_AGO,
    by: 'x',
  }

  async function waiting(fields: Document) {
    const bound = thingWith(async (_doc, step) => step.moveTo('Created'))
    await replicaOf(database.db, bound).prepare()
    const progress = { at: NINE_DAYS_AGO, since: NINE_DAYS_AGO, ...fields['progress'] }
    await things(database.db).insertOne({
      _id: 'a',
      phase: 'Creating',
      updatedAt: NINE_DAYS_AGO,
      ...fields,
      progress,
    } as never)
    return bound
  }
  const dueForSeconds = async () => {
    const [row] = await countPhases(system(), { fresh: true })
    expect(row).toMatchObject({ phase: 'Creating', due: { n: 1 } })
    return (row!.at.getTime() - row!.oldestDueAt!.getTime()) / 1_000
  }
  const asleep = { lockedAt: new Date(Date.now() + 3_600_000) }

  test.each<[string, Document, () => Promise<unknown>]>([
    ['unparked', { lockedAt: PARKED_AT }, () => unparkDocument(system(), { id: 'a' }, { by: 'ana' })],
    ['woken', asleep, () => wakeDocument(system(), { id: 'a' })],
    [
      'answered',
      { ...asleep, progress: { question } },
      () => answerQuestion(system(), { id: 'a' }, { option: 'yes', by: 'ana' }),
    ],
  ])('%s nine days after its last step, is due since then', async (_how, fields, act) => {
    await waiting(fields)
    await act()
    expect(await dueForSeconds()).toBeLessThan(600)
  })
})
