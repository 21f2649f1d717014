import { createHash } from 'node:crypto'
import { type Duration, type Logger, silentLogger } from 'phaselock'
import { durationMs } from 'phaselock/tasks'
import { anything, type Checks, checkOptions } from '../options.js'
import { checked } from './check-vectors.js'
import type { Embedded, Embedder, Embeddings, KeptVectors } from './embedder.js'
import { EmbeddingTimeout, InvalidEmbedder } from './errors.js'
import { TextWindow } from './text-window.js'

/** Options of `embeddings`. */
export interface EmbeddingsOptions {
  /** The place where vectors are kept, such as `mongoVectors(db)`: without it every text is embedded each time. */
  readonly kept?: KeptVectors | undefined
  /** The longest wait for the vectors of one batch. Default '60s'. */
  readonly timeout?: Duration | undefined
  /** Logs once that texts are longer than the model's window. Default: no log. */
  readonly logger?: Logger | undefined
}

const OPTIONS: Checks<EmbeddingsOptions> = { kept: anything, timeout: anything, logger: anything }
const BATCH = 32

/**
 * Embeddings for a sync: texts in batches, each answer checked, and vectors that were kept reused. Text that was embedded once isn't embedded again,
 * whatever file, branch or repository it is in.
 * @throws InvalidEmbedder, InvalidOptions
 * @example
 * ```ts
 * const code = embeddings(openAiEmbeddings({ url, key, model: 'text-embedding-3-small' }), { kept: mongoVectors(db) })
 * const { vectors, embedded, reused } = await code.embed(['const a = 1'], { signal: step.signal })
 * ```
 */
export function embeddings(embedder: Embedder, options: EmbeddingsOptions = {}): Embeddings {
  const { kept, timeout = '60s', logger = silentLogger } = checkOptions('embeddings', OPTIONS, options)
  const { model, dimensions, batch = BATCH } = validated(embedder)
  const withinMs = durationMs(timeout, 'timeout')
  const window = new TextWindow(embedder, logger)

  /** Asks the model. One that doesn't end with its signal is no longer waited for. */
  const ask = async (texts: readonly string[], signal: AbortSignal): Promise<Float32Array[]> => {
    const ending = new AbortController()
    const timer = setTimeout(() => ending.abort(new EmbeddingTimeout(model, texts.length, timeout)), withinMs)
    const either = AbortSignal.any([signal, ending.signal])
    const { promise: ended, reject } = Promise.withResolvers<never>()
    const onAbort = () => reject(either.reason)
    either.addEventListener('abort', onAbort, { once: true })
    try {
      return checked(embedder, texts, await Promise.race([embedder.embed(texts, { signal: either }), ended]))
    } catch (error) {
      // Whatever it makes of the abort, ours is the reason.
      either.throwIfAborted()
      throw error
    } finally {
      clearTimeout(timer)
      either.removeEventListener('abort', onAbort)
    }
  }

  return {
    model,
    dimensions,
    async embed(texts, { signal }): Promise<Embedded> {
      signal.throwIfAborted()
      const keys = texts.map((text) => keyOf(model, dimensions, text))
      const distinct = new Map(texts.map((text, i) => [keys[i]!, text]))
      const found = await reusable(kept, [...distinct.keys()], dimensions)
      const missing = [...distinct].filter(([key]) => !found.has(key))
      for (let from = 0; from < missing.length; from += batch) {
        signal.throwIfAborted()
        const some = missing.slice(from, from + batch)
        const vectors = await ask(
          some.map(([, text]) => text),
          signal,
        )
        const made = new Map(some.map(([key], i) => [key, vectors[i]!]))
        // Before the next batch is asked for: what was paid for survives a crash.
        await kept?.set(made)
        for (const [key, vector] of made) found.set(key, vector)
      }
      return {
        vectors: keys.map((key) => found.get(key)!),
        embedded: missing.length,
        reused: distinct.size - missing.length,
        beyondWindow: window.beyond([...distinct.values()]),
      }
    },
  }
}

function validated(embedder: Embedder): Embedder {
  const { embed, model, dimensions, window, batch } = embedder
  const problems: string[] = []
  if (typeof embed !== 'function') problems.push(`embed: expected a function of texts, got ${typeof embed}`)
  if (typeof model !== 'string' || model === '') problems.push(`model: expected its name, got ${String(model)}`)
  for (const [field, value] of Object.entries({ dimensions, window: window ?? 1, batch: batch ?? 1 }))
    if (!Number.isInteger(value) || value < 1) problems.push(`${field}: expected a whole number from 1, got ${value}`)
  if (problems.length > 0) throw new InvalidEmbedder(`embedder: ${problems.join('; ')}`)
  return embedder
}

/** A kept vector that was edited or cut counts as missing. */
async function reusable(kept: KeptVectors | undefined, keys: readonly string[], dimensions: number) {
  const found = new Map(await kept?.get(keys))
  for (const [key, vector] of found)
    if (vector.length !== dimensions || !vector.every(Number.isFinite)) found.delete(key)
  return found
}

/** JSON keeps the parts apart, whatever characters are in them. */
const keyOf = (model: string, dimensions: number, text: string) =>
  createHash('sha256')
    .update(JSON.stringify([model, dimensions, text]))
    .digest('base64url')
