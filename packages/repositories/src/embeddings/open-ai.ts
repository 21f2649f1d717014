import { type Duration, Unavailable } from 'phaselock'
import { anything, type Checks, checkOptions } from '../options.js'
import type { Embedder } from './embedder.js'
import { BadEmbeddings, EmbeddingsRefused, InvalidEmbedder } from './errors.js'

/** Options of `openAiEmbeddings`. */
export interface OpenAiOptions {
  /** The API's address, with its version: `https://api.openai.com/v1`. `/embeddings` is appended. */
  readonly url: string
  /** The API key, sent as a bearer token. Servers of your own may need none. */
  readonly key?: string | undefined
  readonly model: string
  /** The count of numbers in each vector. Known for OpenAI's models; for others it must be given. */
  readonly dimensions?: number | undefined
  /**
   * True to ask the service for vectors of `dimensions` numbers. Default: only for OpenAI's models that can shorten theirs, when `dimensions` isn't their
   * own. Many other servers refuse the request then.
   */
  readonly sendDimensions?: boolean | undefined
  /** The tokens that the model reads of a text. Default: 8,191 for OpenAI's models, else no limit. */
  readonly window?: number | undefined
  /** The most texts of one request. Default 32: with 5,500 tokens each that is 176,000, and OpenAI takes 300,000. */
  readonly batch?: number | undefined
}

const OPTIONS: Checks<OpenAiOptions> = {
  url: anything,
  key: anything,
  model: anything,
  dimensions: anything,
  sendDimensions: anything,
  window: anything,
  batch: anything,
}

const OPEN_AI: Readonly<Record<string, { dimensions: number; canShorten: boolean }>> = {
  'text-embedding-3-small': { dimensions: 1_536, canShorten: true },
  'text-embedding-3-large': { dimensions: 3_072, canShorten: true },
  'text-embedding-ada-002': { dimensions: 1_536, canShorten: false },
}
const OPEN_AI_WINDOW = 8_191

/**
 * An embedder on OpenAI's API, or on one that speaks it (vLLM, text-embeddings-inference, Ollama, LiteLLM). Its `embed` throws `Unavailable` when the service
 * is away, overloaded or limits the rate, with the pause of its `Retry-After`; EmbeddingsRefused when it refuses the request. It tries nothing again:
 * the sync waits, and other replicas with it if their limit is paused.
 * @throws InvalidEmbedder, InvalidOptions
 * @example
 * ```ts
 * openAiEmbeddings({ url: 'https://api.openai.com/v1', key: process.env.OPENAI_API_KEY, model: 'text-embedding-3-small' })
 * openAiEmbeddings({ url: 'http://tei:80/v1', model: 'BAAI/bge-small-en-v1.5', dimensions: 384, window: 512 })
 * ```
 */
export function openAiEmbeddings(options: OpenAiOptions): Embedder {
  const { key, model, batch } = checkOptions('openAiEmbeddings', OPTIONS, options)
  const known = OPEN_AI[model]
  const dimensions = options.dimensions ?? known?.dimensions
  if (dimensions === undefined)
    throw new InvalidEmbedder(
      `openAiEmbeddings: expected \`dimensions\`, because the size of ${model}'s vectors isn't known here`,
    )
  const shortens = options.sendDimensions ?? (known?.canShorten === true && dimensions !== known.dimensions)
  const url = endpoint(options.url)
  const headers = { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) }
  return {
    model,
    dimensions,
    batch,
    window: options.window ?? (known && OPEN_AI_WINDOW),
    async embed(input, { signal }) {
      const body = JSON.stringify({ model, input, encoding_format: 'float', ...(shortens && { dimensions }) })
      // A redirect would carry the texts elsewhere.
      const response = await fetch(url, { method: 'POST', headers, body, signal, redirect: 'error' }).catch((error) => {
        signal.throwIfAborted()
        throw new Unavailable(`embeddings of ${model}: ${causeOf(error)}`, { cause: error })
      })
      const text = await response.text().catch((error) => {
        signal.throwIfAborted()
        throw new Unavailable(`embeddings of ${model}: the answer broke off: ${causeOf(error)}`, { cause: error })
      })
      if (!response.ok) throw refusal(model, response, withoutKey(text, key))
      return vectorsIn(model, text, input.length)
    },
  }
}

function endpoint(given: string): string {
  const url = URL.canParse(given) ? new URL(given) : undefined
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
    throw new InvalidEmbedder(
      `openAiEmbeddings: url: expected an address such as https://api.openai.com/v1, got '${given}'`,
    )
  if (url.username || url.password)
    throw new InvalidEmbedder('openAiEmbeddings: url: expected no user or password in it; give the key as `key`')
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/embeddings`
  return url.href
}

/** `fetch failed` doesn't help: its cause has the reason. */
const causeOf = (error: Error) => String((error.cause as Error | undefined)?.message || error.message)

/** Some servers repeat the key that they refuse. */
const withoutKey = (text: string, key: string | undefined) => (key ? text.replaceAll(key, '***') : text)

/** Statuses that pass: timeouts, conflicts, too early, too many requests, and all from 500 on. */
const mayPass = (status: number) => [408, 409, 425, 429].includes(status) || status >= 500

function refusal(model: string, response: Response, text: string): Error {
  const problem = `${response.status} ${wordsIn(text) || response.statusText}`.trim()
  if (mayPass(response.status)) {
    const retryAfter = retryAfterOf(response.headers)
    return new Unavailable(`embeddings of ${model}: ${problem}`, retryAfter === undefined ? {} : { retryAfter })
  }
  const advice = response.status === 401 || response.status === 403 ? '; is the key the one of this service?' : ''
  return new EmbeddingsRefused(model, response.status, problem + advice)
}

/** OpenAI's `{ error: { message } }`, or what other servers write. */
function wordsIn(text: string): string {
  let words = text
  try {
    const { error, message, detail } = JSON.parse(text)
    words = String(error?.message ?? message ?? (typeof error === 'string' ? error : detail) ?? text)
  } catch {
    // A proxy's page.
  }
  return words.replaceAll(/\s+/g, ' ').slice(0, 300)
}

const LONGEST_PAUSE_S = 3_600

/** Seconds, or a date, which is compared with the server's own. */
function retryAfterOf(headers: Headers): Duration | undefined {
  const given = headers.get('retry-after')
  if (given === null) return undefined
  const seconds = /^\d+(\.\d+)?$/.test(given.trim())
    ? Number(given)
    : (Date.parse(given) - Date.parse(headers.get('date') ?? '')) / 1_000
  return Number.isFinite(seconds) ? `${Math.ceil(Math.min(Math.max(seconds, 0), LONGEST_PAUSE_S))}s` : undefined
}

/** Vectors in the order of their texts: the API numbers them, and doesn't promise an order. */
function vectorsIn(model: string, text: string, texts: number): number[][] {
  let data: { index?: number; embedding: number[] }[]
  try {
    ;({ data } = JSON.parse(text))
  } catch {
    throw new BadEmbeddings(model, `expected JSON, got ${text.slice(0, 100)}`)
  }
  if (!Array.isArray(data)) throw new BadEmbeddings(model, `expected { data: [...] }, got ${text.slice(0, 100)}`)
  if (data.length !== texts) throw new BadEmbeddings(model, `expected ${texts} vectors, got ${data.length}`)
  const vectors: number[][] = []
  data.forEach((one, i) => {
    vectors[one?.index ?? i] = one?.embedding
  })
  // A number given twice leaves a gap, or makes the list longer.
  if (vectors.length !== texts || vectors.includes(undefined as never))
    throw new BadEmbeddings(model, `expected one vector for each of ${texts} texts, got other numbers in \`index\``)
  return vectors
}
