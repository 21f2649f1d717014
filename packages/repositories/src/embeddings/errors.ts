/** The model's answer isn't one finite vector of the right dimension for each text. Nothing of it is kept. */
export class BadEmbeddings extends Error {
  override readonly name = 'BadEmbeddings'
  constructor(
    readonly model: string,
    /** The expectation and the answer. */
    readonly problem: string,
  ) {
    super(`embeddings of ${model}: ${problem}`)
  }
}

/** The model gave no answer within the `timeout`. The signal that it was called with has aborted. */
export class EmbeddingTimeout extends Error {
  override readonly name = 'EmbeddingTimeout'
  constructor(
    readonly model: string,
    readonly texts: number,
    readonly timeout: string,
  ) {
    super(
      `embeddings of ${model}: no answer for ${texts} texts within ${timeout}; a smaller \`batch\` or a longer \`timeout\` may help`,
    )
  }
}

/** The service refuses the request, and would refuse it again: the key, the model's name, or a text that it can't take. */
export class EmbeddingsRefused extends Error {
  override readonly name = 'EmbeddingsRefused'
  constructor(
    readonly model: string,
    readonly status: number,
    problem: string,
  ) {
    super(`embeddings of ${model} were refused: ${problem}`)
  }
}

/** Options of an embedder that can't be used. */
export class InvalidEmbedder extends Error {
  override readonly name = 'InvalidEmbedder'
}
