/** An `Embedder` of phaselock-repositories, by its shape. */
export declare function wordllama(): Promise<{
  readonly model: string
  readonly dimensions: number
  embed(texts: readonly string[]): Promise<Float32Array[]>
}>
export declare function installWordllama(): Promise<{ folder: string; python: string }>
