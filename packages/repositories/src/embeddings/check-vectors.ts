import type { Vector } from '../vectors/index.js'
import type { Embedder } from './embedder.js'
import { BadEmbeddings } from './errors.js'

/**
 * Checks an answer and makes 32-bit floats of it, which is what stores keep: a vector is the same before and after it was kept.
 * @throws BadEmbeddings
 */
export function checked({ model, dimensions }: Embedder, texts: readonly string[], answer: unknown): Float32Array[] {
  const refuse = (problem: string): never => {
    throw new BadEmbeddings(model, problem)
  }
  if (!Array.isArray(answer))
    return refuse(`expected a list of vectors, got ${answer === null ? 'null' : typeof answer}`)
  if (answer.length !== texts.length) return refuse(`expected ${texts.length} vectors, got ${answer.length}`)
  return answer.map((given: Vector | null | undefined, i) => {
    if (typeof given?.length !== 'number') return refuse(`expected a vector at ${i}, got ${String(given)}`)
    if (given.length !== dimensions)
      return refuse(
        `expected ${dimensions} numbers, got ${given.length} at ${i}: is it the model that \`dimensions\` is of?`,
      )
    for (let at = 0; at < dimensions; at += 1)
      if (!Number.isFinite(given[at])) return refuse(`expected finite numbers, got ${String(given[at])} at ${i}, ${at}`)
    const vector = Float32Array.from(given)
    // 1e300 is finite, and infinite with 32 bits.
    if (!vector.every(Number.isFinite))
      return refuse(`expected numbers that fit into 32 bits, got a larger one at ${i}`)
    return vector
  })
}
