import { describe, expect, jest, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { conditionOf, countPhases, listDocuments, listQuestions, showDocument } from '../../src/operations/index.js'
import { LifecycleKit } from '../../src/testing/index.js'
import { backDate, thing, things } from '../support/thing.js'
import { asking, SHIP, useQuestions, yes } from './questions-fixture.js'

jest.setTimeout(60_000)

describe('a question', () => {
  const { database, stored, insert, asked } = useQuestions()
  const system = () => ({ db: database.db, models: [thing.model] })

  test.each<[object, RegExp]>([
    [{ option: '', by: 'ana' }, /option: expected a name, got an empty string/],
    [{ option: 'yes' }, /by: expected a string/],
    [{ option: 'x'.repeat(1_001), by: 'ana' }, /option: expected at most 1000 characters/],
    [{ option: 'yes', by: 'ana', coment: 'x' }, /coment/],
  ])('takes no answer %j', async (answer, message) => {
    const { owner } = await asked()
    await expect(owner.answer('a', answer as never)).rejects.toThrow(message)
    expect((await stored())['progress']).not.toHaveProperty('answer')
  })

  test.each<[object, RegExp]>([
    [{ question: '' }, /ask: expected a question, got ""/],
    [{ options: [] }, /options to be 1 to 20 different texts/],
    [{ options: ['yes', 'yes'] }, /options to be 1 to 20 different texts/],
    [{ to: [1] }, /expected to to be 1 to 20 different/],
    [{ timeout: '-1s' }, /ask: timeout/],
    [{ timeout: '0s' }, /more than 0/],
    [{ onTimeout: 'no' }, /expected a timeout beside onTimeout/],
    [{ timeout: '1h', onTimeout: 'maybe' }, /one of its options \(yes, no\) as onTimeout, got "maybe"/],
    [{ tiemout: '1h' }, /unknown option 'tiemout' \(did you mean 'timeout'\?\)/],
  ])('that can not be asked, %j, is an error of its step', async (more, message) => {
    await asked(more)
    const { progress } = await stored()
    expect(progress.error).toMatchObject({ name: 'InvalidOutcome', message: expect.stringMatching(message) })
    expect(progress).not.toHaveProperty('question')
  })
  test('is in the inbox, oldest first; show, list and count name it', async () => {
    const { replica, owner } = await asked({ timeout: '2h', onTimeout: 'no' })
    await insert('b', 'c')
    await replica.runOnce()
    await backDate(database.db, 'b', 60_000)
    expect((await owner.questions()).map(({ _id }) => _id)).toEqual(['b', 'a', 'c'])
    expect(await owner.questions({ limit: 1 })).toMatchObject([{ _id: 'b', phase: 'Creating', ...SHIP }])
    await owner.answer('b', yes)
    const { questions, now } = await listQuestions(system())
    expect(questions).toMatchObject([{ lifecycle: 'thing', _id: 'a' }, { _id: 'c' }])
    expect(now).toEqual(expect.any(Date))
    const shown = await showDocument(system(), { id: 'a' })
    expect(shown.condition).toMatchObject({ kind: 'asking', question: { question: 'Ship it?' } })
    expect(shown.explanation).toMatch(
      /^Asks 'Ship it\?' \(yes or no\), of ops and ana, since .*: it waits for an answer \(phaselock answer a <option>\); its time is over in .+, then 'no' counts\.$/,
    )
    const { documents } = await listDocuments(system(), { lifecycle: 'thing' })
    expect(documents.find(({ document }) => document['_id'] === 'c')!.why).toBe(
      'asks Ship it? (yes or no), of ops and ana',
    )
    const counts = await countPhases(system(), { fresh: true })
    expect(counts.find(({ phase }) => phase === 'Creating')).toMatchObject({
      ...{ sleeping: { n: 2 }, asking: { n: 2 }, due: { n: 1 } },
    })
    await backDate(database.db, 'c', 7_201_000)
    expect((await owner.questions()).map(({ _id }) => _id)).toEqual(['a'])
    const late = (await stored('c')) as Document
    expect(conditionOf(late, thing.model, new Date(), 30_000).kind).not.toBe('asking')
  })

  test.each<[string, unknown]>([
    ['a text', 'Ship it?'],
    ['without an id', { question: 'Ship it?', askedAt: new Date() }],
    ['null', null],
    ['from before its phase', { id: 'x', question: 'Ship it?', askedAt: new Date(1) }],
  ])('that a person has put there, %s, is none', async (_what, question) => {
    const { owner, replica, answers } = await asked()
    await things(database.db).updateOne({ _id: 'a' }, { $set: { 'progress.question': question } })
    expect(await owner.answer('a', yes)).toEqual({ kind: 'notAsking' })
    expect(await owner.questions()).toEqual([])
    await owner.wake('a')
    await replica.runOnce()
    expect(answers[1]).toBeUndefined()
    expect(await owner.questions()).toHaveLength(1)
  })

  test('an answer that a person has damaged is none: the question is open, and another one counts', async () => {
    const { owner, replica, answers } = await asked()
    const { question } = (await stored())['progress']
    await things(database.db).updateOne(
      { _id: 'a' },
      { $set: { 'progress.answer': { questionId: question.id, option: 5 } } },
    )
    expect(await owner.questions()).toHaveLength(1)
    expect(await owner.answer('a', yes)).toMatchObject({ kind: 'answered' })
    await replica.runOnce()
    expect(answers[1]).toMatchObject(yes)
  })

  test('is asked and answered in the testing kit; a crash after it was asked, or after its answer, loses nothing', async () => {
    const { answers, lifecycle } = asking()
    const kit = await LifecycleKit.open({ lifecycles: [lifecycle], uri: database.uri })
    try {
      await kit.insert('thing', { _id: 'a', phase: 'Creating' })
      await kit.untilIdle()
      expect(await kit.answer('thing', 'a', 'yes')).toMatchObject({ kind: 'answered' })
      const crashed = kit.crash('Creating')
      await kit.tick()
      await crashed
      await kit.expectPhase('thing', 'a', 'Creating')
      await kit.advance('2m')
      await kit.untilIdle()
      await kit.expectPhase('thing', 'a', 'Created')
      expect(answers).toMatchObject([undefined, { option: 'yes', by: 'tester' }, { option: 'yes', by: 'tester' }])
    } finally {
      await kit.close()
    }
  })
})
