import { describe, expect, test } from '@jest/globals'
import { ANSWERED, type Batch, Batcher } from '../../src/concurrency/index.js'
import { gate } from '../support/thing.js'

const turnOfTheLoop = () => new Promise<void>((resolve) => setImmediate(() => setImmediate(resolve)))

/** A batcher whose batches end when the test lets them. */
function batcher(most?: () => number) {
  const sent: { values: string; batch: Batch<string, string>; end: (error?: unknown) => void }[] = []
  const batches = new Batcher<string, string>(async (values, batch) => {
    const { wait, open } = gate()
    let failed: unknown
    const end = (error?: unknown) => {
      failed = error
      open()
    }
    sent.push({ values: values.join(''), batch, end })
    await wait
    if (failed) throw failed
    return `of ${values.join('')}`
  }, most)
  const answers: string[] = []
  const ask = (values: string) => {
    for (const value of values)
      void batches.ask(value).then(
        (answer) => answers.push(`${value} ${answer}`),
        (error: Error) => answers.push(`${value} ${error.message}`),
      )
  }
  return { batches, sent, answers, ask, commands: () => sent.map(({ values }) => values).join(' ') }
}

type Step = (of: ReturnType<typeof batcher>) => void
const ask =
  (values: string): Step =>
  ({ ask }) =>
    ask(values)
const end =
  (n: number, error?: unknown): Step =>
  ({ sent }) =>
    sent[n]!.end(error)
const back =
  (n: number): Step =>
  ({ sent }) =>
    sent[n]!.batch.back()

describe('values that come together are sent together', () => {
  test.each<[title: string, most: number | undefined, steps: Step[], commands: string, open: number]>([
    ['those of one turn, in the order of the calls', undefined, [(of) => [ask('a')(of), ask('b')(of)]], 'ab', 1],
    ['those of two turns apart', undefined, [ask('ab'), ask('c')], 'ab c', 2],
    ['the next batch fills while as many are in flight as may be', 1, [ask('a'), ask('b'), ask('c')], 'a', 3],
    ['and goes when one has ended', 1, [ask('a'), ask('b'), ask('c'), end(0)], 'a bc', 1],
    ['or has failed', 1, [ask('a'), ask('b'), end(0, new Error('odd'))], 'a b', 1],
    ['or is back before its end', 1, [ask('a'), ask('b'), back(0)], 'a b', 1],
    ['which counts once', 1, [ask('a'), ask('b'), back(0), back(0), end(0), ask('c')], 'a b', 2],
    ['two in flight', 2, [ask('a'), ask('b'), ask('c'), end(1)], 'a b c', 2],
    ['no batch without values', 1, [ask('a'), end(0)], 'a', 0],
  ])('%s', async (_title, most, steps, commands, open) => {
    const of = batcher(most === undefined ? undefined : () => most)
    for (const step of steps) {
      step(of)
      await turnOfTheLoop()
    }
    expect(of.commands()).toBe(commands)
    expect(of.batches.open).toBe(open)
  })

  test('the most in flight is asked before each batch', async () => {
    let most = 1
    const of = batcher(() => most)
    of.ask('a')
    await turnOfTheLoop()
    of.ask('b')
    most = 2
    of.ask('c')
    await turnOfTheLoop()
    expect(of.commands()).toBe('a bc')
  })
})

describe('each caller is answered', () => {
  test.each<[title: string, during: (batch: Batch<string, string>) => void, error: unknown, answers: string[]]>([
    ['by the result', () => undefined, undefined, ['a of ab', 'b of ab']],
    ['by the error', () => undefined, new Error('odd'), ['a odd', 'b odd']],
    ['first by its own answer', ({ asked }) => asked[1]!.resolve('own'), undefined, ['b own', 'a of ab']],
    ['whose error fails no other', ({ asked }) => asked[0]!.reject(new Error('own')), undefined, ['a own', 'b of ab']],
    [
      'which an error of the batch does not replace',
      ({ asked }) => asked[0]!.resolve('own'),
      new Error('odd'),
      ['a own', 'b odd'],
    ],
  ])('%s', async (_title, during, error, answers) => {
    const of = batcher()
    of.ask('ab')
    await turnOfTheLoop()
    during(of.sent[0]!.batch)
    await turnOfTheLoop()
    of.sent[0]!.end(error)
    await turnOfTheLoop()
    expect(of.answers).toEqual(answers)
    expect(of.batches.open).toBe(0)
  })
})

test('a batch that has answered all its values by itself says so', async () => {
  const batches = new Batcher<number, number>(async (_values, { asked }) => {
    for (const { value, resolve } of asked) resolve(value * 2)
    return ANSWERED
  })
  expect(await Promise.all([batches.ask(1), batches.ask(2)])).toEqual([2, 4])
})
