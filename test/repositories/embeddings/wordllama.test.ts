import { expect, test } from '@jest/globals'
import { embeddings } from '../../../packages/repositories/src/embeddings/index.js'
import { memory, pointId } from '../../../packages/repositories/src/vectors/index.js'
import { installWordllama, wordllama } from '../../../tools/embeddings/wordllama.mjs'
import { ServerMissing } from '../../../tools/servers/server-missing.mjs'
import { describeWith } from '../../support/describe-with.js'

const describe = await describeWith('wordllama', installWordllama, ServerMissing)
describe('the embedder of the demo', () => {
  test('finds the text that means the same, in other words', async () => {
    const embedder = await wordllama()
    const texts = {
      'retry.ts': 'export async function backOff(attempt: number) { /* wait longer after each failed attempt */ }',
      'invoice.ts':
        'export function totalOf(invoice: Invoice) { return invoice.lines.reduce((sum, line) => sum + line.price, 0) }',
      'login.ts': 'export async function signIn(user: string, password: string): Promise<Session> {}',
      'emoji.ts': 'const party = "🎈\n\t한글"',
    }
    const store = memory()
    await store.create('code', { model: embedder.model, dimensions: embedder.dimensions, chunker: 'whole' })
    const { signal } = new AbortController()
    const { vectors } = await embeddings(embedder).embed(Object.values(texts), { signal })
    const points = Object.entries(texts).map(([path, text], i) => {
      const place = { repository: 'r', path, blob: 'b', hash: path, fromLine: 1, toLine: 1 }
      return { ...place, id: pointId('r', path, path), text, vector: vectors[i]! }
    })
    await store.upsert('code', points, { fence: 1 })
    const find = async (question: string) => {
      const { vectors } = await embeddings(embedder).embed([question], { signal })
      return (await store.query('code', vectors[0]!, { limit: 1 }))[0]!.path
    }
    expect(await find('waiting time before the next try')).toBe('retry.ts')
    expect(await find('how much does the customer have to pay')).toBe('invoice.ts')
    expect(await find('authentication of users')).toBe('login.ts')
  })
})
