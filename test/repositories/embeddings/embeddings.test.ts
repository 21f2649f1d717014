import { expect, test } from '@jest/globals'
import {
  BadEmbeddings,
  type Embedder,
  embeddings,
  memoryVectors,
} from '../../../packages/repositories/src/embeddings/index.js'
import { hashedEmbedder } from '../hashed-embedder.js'

const signal = new AbortController().signal
/** An embedder that answers as told, and remembers what it was asked. */
function scripted(embed: Embedder['embed'], more: Partial<Embedder> = {}) {
  const asked: (readonly string[])[] = []
  const embedder: Embedder = {
    model: 'm',
    dimensions: 2,
    embed: (texts, options) => {
      asked.push(texts)
      return embed(texts, options)
    },
    ...more,
  }
  return { embedder, asked }
}
const lengths = async (texts: readonly string[]) => texts.map((text) => [text.length, 1])

test('vectors come in the order of their texts, equal texts are asked for once, and kept ones not again', async () => {
  const { embedder, asked } = scripted(lengths, { batch: 2 })
  const kept = memoryVectors()
  const first = await embeddings(embedder, { kept }).embed(['aaa', 'b', 'aaa', 'cc'], { signal })
  expect(first.vectors.map((vector) => [...vector])).toEqual([
    [3, 1],
    [1, 1],
    [3, 1],
    [2, 1],
  ])
  expect(first).toMatchObject({ embedded: 3, reused: 0, beyondWindow: 0 })
  expect(asked).toEqual([['aaa', 'b'], ['cc']])
  const second = await embeddings(embedder, { kept }).embed(['dddd', 'cc', 'aaa'], { signal })
  expect(second).toMatchObject({ embedded: 1, reused: 2 })
  expect(second.vectors.map((vector) => vector[0])).toEqual([4, 2, 3])
  expect(asked.at(-1)).toEqual(['dddd'])
  expect(await embeddings(embedder, { kept }).embed([], { signal })).toMatchObject({ vectors: [], embedded: 0 })
})

test('vectors of another model or dimension are others', async () => {
  const kept = memoryVectors()
  const of = async (more: Partial<Embedder>) =>
    (await embeddings(hashedEmbedder(more), { kept }).embed(['a text'], { signal })).embedded
  expect([await of({}), await of({}), await of({ model: 'another' }), await of({ dimensions: 32 })]).toEqual([
    1, 0, 1, 1,
  ])
})

test('a vector is the same whether it was kept or not', async () => {
  const { embedder } = scripted(async (texts) => texts.map(() => [0.1, 1 / 3]))
  const kept = memoryVectors()
  const made = await embeddings(embedder, { kept }).embed(['a'], { signal })
  const again = await embeddings(embedder, { kept }).embed(['a'], { signal })
  expect(again.reused).toBe(1)
  expect([...again.vectors[0]!]).toEqual([...made.vectors[0]!])
})

test.each<[string, unknown, RegExp]>([
  ['too few', [[1, 1]], /expected 2 vectors, got 1/],
  [
    'too many',
    [
      [1, 1],
      [1, 1],
      [1, 1],
    ],
    /expected 2 vectors, got 3/,
  ],
  [
    'another dimension',
    [
      [1, 1],
      [1, 1, 1],
    ],
    /expected 2 numbers, got 3 at 1/,
  ],
  [
    'a NaN',
    [
      [1, 1],
      [1, Number.NaN],
    ],
    /expected finite numbers, got NaN at 1, 1/,
  ],
  [
    'null, which JSON makes of NaN',
    [
      [1, null],
      [1, 1],
    ],
    /expected finite numbers, got null at 0, 1/,
  ],
  [
    'an infinite number',
    [
      [1, Number.POSITIVE_INFINITY],
      [1, 1],
    ],
    /expected finite numbers, got Infinity/,
  ],
  [
    'what doesn’t fit into 32 bits',
    [
      [1, 1e300],
      [1, 1],
    ],
    /32 bits/,
  ],
  [
    'texts',
    [
      ['1', '2'],
      [1, 1],
    ],
    /expected finite numbers, got 1 at 0/,
  ],
  ['no vector', [undefined, [1, 1]], /expected a vector at 0, got undefined/],
  ['no list', { data: [] }, /expected a list of vectors, got object/],
  ['nothing', undefined, /expected a list of vectors, got undefined/],
])('an answer with %s is refused, and nothing of it is kept', async (_, answer, problem) => {
  const { embedder } = scripted(async () => answer as number[][])
  const kept = memoryVectors()
  const asked = embeddings(embedder, { kept }).embed(['a', 'b'], { signal })
  await expect(asked).rejects.toThrow(BadEmbeddings)
  await expect(asked).rejects.toThrow(problem)
  const good = scripted(lengths)
  expect(await embeddings(good.embedder, { kept }).embed(['a', 'b'], { signal })).toMatchObject({ embedded: 2 })
})

test('what one batch made is kept, though the next one fails', async () => {
  const { embedder } = scripted(
    async (texts) => (texts.includes('bad') ? Promise.reject(new Error('no')) : lengths(texts)),
    { batch: 2 },
  )
  const kept = memoryVectors()
  await expect(embeddings(embedder, { kept }).embed(['a', 'b', 'bad', 'c'], { signal })).rejects.toThrow('no')
  const { asked, embedder: good } = scripted(lengths)
  await embeddings(good, { kept }).embed(['a', 'b', 'c'], { signal })
  expect(asked).toEqual([['c']])
})

test('an embedder that hangs is let go of, and its signal aborts', async () => {
  let aborted: unknown
  const { embedder } = scripted((_, options) => {
    options.signal.addEventListener('abort', () => {
      aborted = options.signal.reason
    })
    return new Promise<never>(() => undefined)
  })
  const asked = embeddings(embedder, { timeout: '20ms' }).embed(['a', 'b'], { signal })
  await expect(asked).rejects.toMatchObject({ name: 'EmbeddingTimeout', model: 'm', texts: 2 })
  await expect(asked).rejects.toThrow(/no answer for 2 texts within 20ms/)
  expect(aborted).toMatchObject({ name: 'EmbeddingTimeout' })
})

test('a step that ends ends the call, whatever the embedder makes of it', async () => {
  const over = new Error('the step is over')
  const hanging = scripted(() => new Promise<never>(() => undefined))
  const rejecting = scripted(
    (_, options) =>
      new Promise<never>((_resolve, reject) => {
        options.signal.addEventListener('abort', () => reject(new Error('AbortError of a library')))
      }),
  )
  for (const { embedder, asked } of [hanging, rejecting]) {
    const step = new AbortController()
    const asking = embeddings(embedder).embed(['a'], { signal: step.signal })
    setImmediate(() => step.abort(over))
    await expect(asking).rejects.toBe(over)
    await expect(embeddings(embedder).embed(['a'], { signal: step.signal })).rejects.toBe(over)
    expect(asked).toHaveLength(1)
  }
})

test('texts beyond the model’s window are counted each time, and reported once', async () => {
  const lines: string[] = []
  const logger = { debug() {}, info() {}, error() {}, warn: (line: string) => void lines.push(line) }
  const code = embeddings(hashedEmbedder({ window: 256 }), { logger })
  const texts = ['short', 'x'.repeat(7_000), 'y'.repeat(897), 'z'.repeat(896)]
  expect((await code.embed(texts, { signal })).beyondWindow).toBe(2)
  expect((await code.embed(texts, { signal })).beyondWindow).toBe(2)
  expect(lines).toEqual([expect.stringMatching(/^hashed reads 256 tokens of a text, and some have up to 2000: what/)])
  const exact = embeddings(hashedEmbedder({ window: 3, countTokens: (text) => text.split(' ').length }))
  expect((await exact.embed(['a b c', 'a b c d'], { signal })).beyondWindow).toBe(1)
  expect((await embeddings(hashedEmbedder()).embed(texts, { signal })).beyondWindow).toBe(0)
})

test('an embedder without a model or a size is refused', () => {
  expect(() => embeddings({ model: '', dimensions: 0.5, batch: 0 } as unknown as Embedder)).toThrow(
    /embed: expected a function of texts, got undefined; model: .*dimensions: .*got 0.5; batch: .*got 0/,
  )
})

test('memory keeps the vectors that were used last', async () => {
  const kept = memoryVectors({ max: 2 })
  const one = Float32Array.of(1)
  await kept.set(
    new Map([
      ['a', one],
      ['b', one],
    ]),
  )
  await kept.get(['a'])
  await kept.set(new Map([['c', one]]))
  expect([...(await kept.get(['a', 'b', 'c'])).keys()]).toEqual(['a', 'c'])
})
