import { describe, expect, jest, test } from '@jest/globals'
import { lifecycleOf, type Step } from '../../src/index.js'
import { idOf, type Order, order, parcel, parcelsWith, useChildren } from './children-fixture.js'

jest.setTimeout(60_000)

describe('children', () => {
  const { parcels, stored, insert, prepared } = useChildren()

  type Wrong = (step: Step<'Shipped' | 'Stuck', Order>) => Promise<unknown>
  const wrong: [string, RegExp, Wrong][] = [
    [
      'no rule',
      /expected a rule/,
      async (step) => {
        await step.children([])
        await step.childrenDone({ rule: 'most' as never })
      },
    ],
    [
      'a rule about others',
      /a rule about its 1 child/,
      async (step) => {
        await step.children([parcel.child('a', { weight: 1 })])
        await step.childrenDone({ rule: '1 of 2' })
      },
    ],
    ['no children', /call step.children\(\[...\]\) first/, (step) => step.childrenDone({ rule: 'allDone' })],
    ['no list', /expected a list of children/, (step) => step.children('a' as never)],
    [
      'no rule',
      /childrenDone: expected an object with rule, parked, wake, recheck, got undefined/,
      async (step) => {
        await step.children([parcel.child('a', { weight: 1 })])
        await step.childrenDone(undefined as never)
      },
    ],
    ["no document's phases", /expected a document's phases .*, got {}/, (step) => step.waitFor({} as never)],
    [
      'a question that is only a text',
      /ask: expected an object with question, .*, as in { question: "x" }, got "x"/,
      async (step) => void step.ask('x' as never),
    ],
    [
      'two of one key',
      /two of parcel have the key 'a'/,
      (step) => step.children([parcel.child('a', { weight: 1 }), parcel.child('a', { weight: 2 })]),
    ],
    ['a key of nothing', /expected a key of 1 to 200/, (step) => step.children([parcel.child('', { weight: 1 })])],
    [
      'a key that was cut in the middle of a character',
      /expected a key of whole characters, got "tea \\ud83c"/,
      (step) => step.children([parcel.child('tea 🍵'.slice(0, 5), { weight: 1 })]),
    ],
    [
      'a lifecycle that nobody knows',
      /registered, got 'gift'/,
      (step) => step.children([{ lifecycle: 'gift', key: 'a', document: {} }]),
    ],
    [
      'a lifecycle of no children',
      /define it with child: true/,
      (step) => step.children([{ lifecycle: 'order', key: 'a', document: {} }]),
    ],
    [
      'an unknown phase',
      /expected a phase of parcel/,
      (step) => step.children([parcel.child('a', { weight: 1, phase: 'Gone' as never })]),
    ],
    [
      'what cannot be stored',
      /parcel, child 'a'/,
      (step) => step.children([parcel.child('a', { weight: (() => 1) as never })]),
    ],
    [
      'a lockedAt that no claim would find',
      /parcel, child 'a': expected lockedAt to be a date, or left out, got 'soon'/,
      (step) => step.children([parcel.child('a', { weight: 1, lockedAt: 'soon' as never })]),
    ],
    ['an unknown option', /unknown option 'name'/, (step) => step.children([], { name: 'x' } as never)],
    [
      'the _id of another',
      /is there already, and is nobody's child/,
      (step) => step.children([parcel.child('a', { _id: 'taken', weight: 1 })]),
    ],
  ]
  test.each(wrong)('are refused: %s', async (_what, message, call) => {
    const lifecycle = order.handle({
      async Shipping(_doc, step) {
        await call(step)
        return step.moveTo('Shipped')
      },
    })
    const replica = await prepared([lifecycle, parcelsWith()])
    await parcels().insertOne({ _id: 'taken', phase: 'Packed' })
    await insert([])
    await replica.runOnce()
    expect((await stored())['progress'].error.message).toMatch(message)
    expect(await parcels().countDocuments({ _id: { $nin: ['taken', idOf('a')] } })).toBe(0)
  })

  test('that are not of their lifecycle do not compile', () => {
    // @ts-expect-error a field is missing
    parcel.child('a', {})
    // @ts-expect-error a field of another type
    parcel.child('a', { weight: 'much' })
    // @ts-expect-error no phase of it
    parcel.child('a', { weight: 1, phase: 'Gone' })
    // @ts-expect-error no phase of it
    parcel.at('a', 'Gone')
    // @ts-expect-error no phase
    parcel.at('a')
    const read = async (step: Step<'Shipped', Order>) => (await step.childrenOf(parcel)).map(({ weight }) => weight + 1)
    expect(read).toBeDefined()
  })

  test('of two parents with one _id: the second parent is told whose it is', async () => {
    const lifecycle = order.handle({
      async Shipping(_doc, step) {
        await step.children([parcel.child('a', { _id: 'one', weight: 1 })])
        return step.moveTo('Shipped')
      },
    })
    const replica = await prepared([lifecycle])
    await prepared([parcelsWith()])
    await insert([], 'first')
    await replica.runOnce()
    await insert([], 'second')
    await replica.runOnce()
    expect((await stored('second'))['progress'].error).toMatchObject({
      name: 'ChildExists',
      message: expect.stringMatching(/parcel one is the child 'a' of order first \(a string\) already/),
    })
    expect(await parcels().findOne({ _id: 'one' })).toMatchObject({ progress: { parent: { id: 'first' } } })
  })

  test('are those of the definition: a child that is removed at once is refused, as is failed for a working phase', () => {
    const define = (phases: object, child = true) =>
      lifecycleOf().define({ name: 'x', collection: 'X', child, phases } as never)
    expect(() => define({ A: { next: ['B'] }, B: { final: true } })).toThrow(/give it a keepFor in which its parent/)
    define({ A: { next: ['B'] }, B: { final: true } }, false)
    define({ A: { next: ['B'] }, B: { final: true, keepFor: '1h' } })
    expect(() => define({ A: { next: ['B'], failed: true }, B: { rest: true } })).toThrow(/failed must be true/)
  })
})
