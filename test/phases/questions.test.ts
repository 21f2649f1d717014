import { describe, expect, jest, test } from '@jest/globals'
import { lifecycleOf, type StepAnswer } from '../../src/index.js'
import { showDocument } from '../../src/operations/index.js'
import { eventually } from '../support/database.js'
import { backDate, gate, type Thing, thing, thingOf, things, thingWith } from '../support/thing.js'
import { asking, kept, SHIP, useQuestions, yes } from './questions-fixture.js'

jest.setTimeout(60_000)

describe('a question', () => {
  const { database, ownerOf, stored, insert, prepared, asked } = useQuestions()
  const system = () => ({ db: database.db, models: [thing.model] })

  test('lets go of its document: nobody holds it, no claim finds it, no attempt is used; an answer goes to the next run', async () => {
    const { answers, replica, owner } = await asked()
    const document = await stored()
    expect(document).not.toHaveProperty('lockedBy')
    expect(document['progress']).toMatchObject({
      claims: 0,
      attempts: 0,
      question: { ...SHIP, onTimeout: null, deadline: null, times: 1, askedAt: expect.any(Date) },
      history: [{ outcome: 'ask', reason: 'Ship it?', from: 'Creating', to: 'Creating' }],
    })
    await replica.runOnce()
    expect(answers).toHaveLength(1)

    const former = owner.answer('a', { ...yes, comment: 'checked' } as never)
    await expect(former).rejects.toThrow('answer: expected reason, got comment: it is called reason now')
    const reason = 'checked'
    expect(await owner.answer('a', { ...yes, reason })).toEqual({
      kind: 'answered',
      question: 'Ship it?',
      option: 'yes',
    })
    await replica.runOnce()
    const { askedAt } = document['progress'].question
    expect(answers[1]).toEqual({ question: 'Ship it?', ...yes, reason, at: expect.any(Date), timedOut: false })
    expect(() => Object(answers[1]).comment).toThrow(
      'step.answer: expected reason, got comment: it is called reason now',
    )
    expect(answers[1]!.at.getTime()).toBeGreaterThanOrEqual(askedAt.getTime())
    const after = await stored()
    expect(after).toMatchObject({ phase: 'Created', effects: ['yes'] })
    expect(after['progress']).not.toHaveProperty('question')
    expect(after['progress']).not.toHaveProperty('answer')
    expect(after['progress'].history).toMatchObject([
      { outcome: 'ask' },
      { outcome: 'owner', by: 'ana', reason: "answered 'yes': checked" },
      { outcome: 'moveTo', to: 'Created' },
    ])
  })

  test('takes one answer: a second, a late, a wrong one and one to nothing change nothing, and say why', async () => {
    const { replica, owner } = await asked()
    await things(database.db).insertOne({ _id: 'created', phase: 'Created' })
    expect(await owner.answer('nobody', yes)).toEqual({ kind: 'notFound' })
    expect(await owner.answer('created', yes)).toEqual({ kind: 'notAsking' })
    const before = await stored()
    expect(await owner.answer('a', { option: 'maybe', by: 'ana' })).toEqual({
      kind: 'notAnOption',
      options: ['yes', 'no'],
    })
    expect(await owner.answer('a', { ...yes, question: 'another' })).toEqual({ kind: 'notAsking' })
    expect(await stored()).toEqual(before)

    const all = await Promise.all(
      ['yes', 'no', 'yes', 'no'].map((option, i) => owner.answer('a', { option, by: `p${i}` })),
    )
    expect(all.filter(({ kind }) => kind === 'answered')).toHaveLength(1)
    expect(all.filter(({ kind }) => kind === 'alreadyAnswered')).toHaveLength(3)
    const { by, option } = (await stored())['progress'].answer
    expect(await owner.answer('a', yes)).toMatchObject({ kind: 'alreadyAnswered', by, option, at: expect.any(Date) })
    await replica.runOnce()
    expect(await owner.answer('a', yes)).toEqual({ kind: 'notAsking' })
  })

  test('is over at its deadline, by the server: the handler runs with what counts then, and an answer is late', async () => {
    const { answers, replica, owner } = await asked({ timeout: '1h', onTimeout: 'no' })
    const { deadline, askedAt } = (await stored())['progress'].question
    expect(deadline.getTime() - askedAt.getTime()).toBe(3_600_000)
    await backDate(database.db, 'a', 3_599_000 - 60_000)
    await replica.runOnce()
    expect(answers).toHaveLength(1)
    await backDate(database.db, 'a', 62_000)
    expect(await owner.answer('a', yes)).toEqual({ kind: 'timedOut', deadline: expect.any(Date) })
    await replica.runOnce()
    expect(answers[1]).toMatchObject({ option: 'no', by: 'timeout', timedOut: true })
    expect(await stored()).toMatchObject({ phase: 'Created', effects: ['no'] })
  })

  test('whose time is over without an onTimeout tells so, and may be asked again, counted', async () => {
    const answers: (StepAnswer | undefined)[] = []
    const lifecycle = thingWith(async (_doc, step) => {
      answers.push(step.answer)
      return step.ask({ ...SHIP, timeout: '1h' })
    }, kept)
    const replica = await prepared(lifecycle)
    await insert('a')
    await replica.runOnce()
    const first = (await stored())['progress'].question
    await backDate(database.db, 'a', 3_601_000)
    await replica.runOnce()
    expect(answers[1]).toMatchObject({ option: undefined, timedOut: true })
    const { question } = (await stored())['progress']
    expect(question).toMatchObject({ times: 2 })
    expect(question.id).not.toBe(first.id)
    expect((await showDocument(system(), { id: 'a' })).explanation).toContain('for the 2. time')
  })

  test('that its handler asks again unchanged, though it was answered, is an error: nobody is asked for ever', async () => {
    const lifecycle = thingWith(async (_doc, step) => step.ask(SHIP), kept)
    const replica = await prepared(lifecycle)
    await insert('a')
    await replica.runOnce()
    await ownerOf().answer('a', yes)
    await replica.runOnce()
    const { progress } = await stored()
    expect(progress.error).toMatchObject({
      name: 'InvalidOutcome',
      message:
        "ask: ana has answered 'yes', and the same was asked again: look at step.answer first, or ask something else",
    })
    expect(progress).toMatchObject({ attempts: 1, answer: { option: 'yes' } })
  })

  test('answered while errors follow: each try finds the answer, until one has moved on', async () => {
    let fails = true
    const seen: unknown[] = []
    const lifecycle = thingWith(async (_doc, step) => {
      if (!step.answer) return step.ask(SHIP)
      seen.push(step.answer.option)
      if (fails) throw new Error('no printer')
      return step.again({ step: 'pack' })
    }, kept)
    const replica = await prepared(lifecycle)
    await insert('a')
    await replica.runOnce()
    await ownerOf().answer('a', yes)
    await replica.runOnce()
    expect(await stored()).toMatchObject({ progress: { attempts: 1, answer: { option: 'yes' } } })
    fails = false
    await backDate(database.db, 'a', 5_000)
    await replica.runOnce()
    expect(seen).toEqual(['yes', 'yes'])
    // The step after `again` has no answer, and asks anew.
    const { question, answer } = (await stored())['progress']
    expect(answer).toBeUndefined()
    expect(question).toMatchObject({ times: 1 })
  })

  test('survives a wake: the handler runs, and what it asks again keeps its id and its deadline', async () => {
    const { answers, replica, owner } = await asked({ timeout: '1h' })
    const { question } = (await stored())['progress']
    expect(await owner.wake('a')).toBe('done')
    await replica.runOnce()
    expect(answers).toEqual([undefined, undefined])
    const again = await stored()
    expect(again['progress'].question).toEqual(question)
    expect(again['progress'].resumeAt).toEqual(question.deadline)
    expect(again['progress'].history).toMatchObject([{ outcome: 'ask', count: 2 }])
    expect(await owner.answer('a', yes)).toMatchObject({ kind: 'answered' })
  })

  test('is withdrawn by a handler that waits for something else', async () => {
    let waits = false
    const lifecycle = thingWith(async (_doc, step) => (waits ? step.wait('rain', { for: '1h' }) : step.ask(SHIP)), kept)
    const replica = await prepared(lifecycle)
    await insert('a')
    await replica.runOnce()
    const owner = ownerOf()
    waits = true
    await owner.wake('a')
    await replica.runOnce()
    expect((await stored())['progress']).not.toHaveProperty('question')
    expect(await owner.answer('a', yes)).toEqual({ kind: 'notAsking' })
  })

  test('takes no answer while its handler runs, and has not been asked before that has ended', async () => {
    const [began, end] = [gate(), gate()]
    let runs = 0
    const lifecycle = thingWith(async (_doc, step) => {
      runs += 1
      if (runs === 2) {
        began.open()
        await end.wait
      }
      return step.answer ? step.moveTo('Created') : step.ask(SHIP)
    }, kept)
    const replica = await prepared(lifecycle)
    await insert('a')
    await replica.runOnce()
    const owner = ownerOf()
    await owner.wake('a')
    const running = replica.runOnce()
    await began.wait
    expect(await owner.answer('a', yes)).toEqual({ kind: 'held' })
    end.open()
    await running
    expect(await owner.answer('a', yes)).toMatchObject({ kind: 'answered' })
  })

  test("ends with a state rule of its owner's; a state without a rule leaves it", async () => {
    const { replica, owner } = await asked()
    await owner.setState('a', 'Running', { force: true })
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Creating', progress: { question: { question: 'Ship it?' } } })
    await owner.setState('a', 'Deleted')
    await replica.runOnce()
    const gone = await stored()
    expect(gone).toMatchObject({ phase: 'Deleted' })
    expect(gone['progress']).not.toHaveProperty('question')
    expect(await owner.answer('a', yes)).toEqual({ kind: 'notAsking' })
  })

  test("ends with its phase's deadline, which its own deadline names", async () => {
    const spec = { Creating: { next: ['Created', 'Deleting'], deadline: { after: '10m', moveTo: 'Deleting' } } }
    const late = lifecycleOf<Thing>().define({
      name: 'thing',
      collection: 'Thing',
      phases: {
        ...spec,
        Created: { rest: true },
        Deleting: { next: ['Deleted'] },
        Deleted: { final: true, keepFor: '1h' },
      } as never,
    }) as unknown as typeof thing
    const lifecycle = thingWith(async (_doc, step) => step.ask({ ...SHIP, timeout: '1h' }), late)
    const replica = await prepared(lifecycle)
    await insert('a')
    await replica.runOnce()
    const { question, since } = (await stored())['progress']
    expect(question.deadline.getTime() - since.getTime()).toBe(600_000)
    await backDate(database.db, 'a', 601_000)
    await replica.runOnce()
    const gone = await stored()
    expect(gone).toMatchObject({ phase: 'Deleted' })
    expect(gone['progress']).not.toHaveProperty('question')
    expect(gone['progress'].history).toContainEqual(expect.objectContaining({ outcome: 'deadline' }))
  })

  test('answered while it is paused: stored, and acted on when the pause ends', async () => {
    const { answers, replica, owner } = await asked()
    await owner.pause({ by: 'ben' })
    await replica.runOnce()
    expect(await owner.answer('a', yes)).toMatchObject({ kind: 'answered' })
    await replica.runOnce()
    expect(answers).toHaveLength(1)
    await owner.resume()
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Created', effects: ['yes'] })
  })

  test('is nothing to unpark, and one that is parked meanwhile takes no answer', async () => {
    let parks = false
    const lifecycle = thingWith(async (_doc, step) => {
      if (step.answer) return step.moveTo('Created')
      return parks ? step.park('no') : step.ask(SHIP)
    }, kept)
    const replica = await prepared(lifecycle)
    await insert('a')
    await replica.runOnce()
    const owner = ownerOf()
    expect(await owner.unpark('a')).toBe('notParked')
    parks = true
    await owner.wake('a')
    await replica.runOnce()
    expect(await owner.answer('a', yes)).toEqual({ kind: 'parked' })
  })

  test('an answer of one replica is found by another, and outlives the stop of all', async () => {
    const { replica, owner, answers } = await asked()
    await replica.stop()
    expect(await owner.answer('a', yes)).toMatchObject({ kind: 'answered' })
    const other = asking()
    const next = await prepared(other.lifecycle)
    await next.runOnce()
    expect(answers).toHaveLength(1)
    expect(other.answers).toMatchObject([{ option: 'yes' }])
    expect(await stored()).toMatchObject({ phase: 'Created' })
  })

  test('an answer and the end of its time: one counts, in 60 rounds', async () => {
    const seen = new Map<string, StepAnswer[]>()
    const lifecycle = thingWith(async (doc, step) => {
      if (!step.answer) return step.ask({ ...SHIP, timeout: '400ms', onTimeout: 'no' })
      seen.set(doc._id, [...(seen.get(doc._id) ?? []), step.answer])
      return step.moveTo('Created')
    }, kept)
    const [one, two] = [await prepared(lifecycle), await prepared(lifecycle)]
    await Promise.all([one.start(), two.start()])
    const ids = Array.from({ length: 60 }, (_, i) => `d${i}`)
    await insert(...ids)
    const owner = ownerOf()
    const results = await Promise.all(
      ids.map(async (id, i) => {
        await eventually(async () => expect((await stored(id))['progress']?.question).toBeDefined())
        await new Promise((resolve) => setTimeout(resolve, 250 + 5 * i))
        return owner.answer(id, yes)
      }),
    )
    await eventually(async () => expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(60))
    for (const [i, id] of ids.entries()) {
      const isAnswered = results[i]!.kind === 'answered'
      expect(seen.get(id)).toEqual([
        expect.objectContaining({ timedOut: !isAnswered, option: isAnswered ? 'yes' : 'no' }),
      ])
    }
  })

  test('holds no slot of a limit: another document asks, and a third, beside one slot', async () => {
    const limited = thingOf({ limits: [{ name: 'api', slots: 1 }] })
    const replica = await prepared(thingWith(async (_doc, step) => step.ask(SHIP), limited))
    await replica.start()
    await insert('a', 'b', 'c')
    await eventually(async () => expect(await ownerOf().questions()).toHaveLength(3))
  })
})
