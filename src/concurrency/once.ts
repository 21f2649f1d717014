/**
 * A work that is done once: calls while it runs share it, and calls after it get its result. A failure is thrown to those who share it, and the
 * next call tries again.
 */
export function once<T>(work: () => Promise<T>): () => Promise<T> {
  let done: Promise<T> | undefined
  return () => {
    done ??= work().catch((error: unknown) => {
      done = undefined
      throw error
    })
    return done
  }
}
