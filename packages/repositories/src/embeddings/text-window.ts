import type { Logger } from 'phaselock'
import type { Embedder } from './embedder.js'

/** 7,000 characters of code are 2,000 tokens in the middle. */
const CHARACTERS_A_TOKEN = 3.5

/** Counts the texts that a model doesn't read to their end, and says so once for each `embeddings`. */
export class TextWindow {
  private isReported = false

  constructor(
    private readonly embedder: Embedder,
    private readonly logger: Logger,
  ) {}

  beyond(texts: readonly string[]): number {
    const { model, window, countTokens = (text: string) => Math.ceil(text.length / CHARACTERS_A_TOKEN) } = this.embedder
    if (window === undefined) return 0
    const tokens = texts.map(countTokens).filter((count) => count > window)
    if (tokens.length > 0 && !this.isReported) {
      this.isReported = true
      this.logger.warn(
        `${model} reads ${window} tokens of a text, and some have up to ${Math.max(...tokens)}: what comes after is not found by a search. Make chunks smaller, or take a model with a longer window`,
        { model, window, texts: tokens.length },
      )
    }
    return tokens.length
  }
}
