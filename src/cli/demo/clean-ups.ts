/** Thrown when a run was interrupted. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted'
  constructor() {
    super('interrupted; its processes and data have been removed')
  }
}

export type CleanUp = () => Promise<unknown>

/**
 * Runs `work` until it is done or the signal aborts, then all clean-ups that it passed to `atEnd`, the latest first, each
 * even if others fail.
 * @throws Interrupted when the signal aborts; what `work` throws; else the first failure of the clean-ups
 */
export async function withCleanUps<T>(
  signal: AbortSignal,
  work: (atEnd: (cleanUp: CleanUp) => void) => Promise<T>,
): Promise<T> {
  const cleanUps: CleanUp[] = []
  let isOver = false
  const working = work((cleanUp) => {
    if (!isOver) return void cleanUps.push(cleanUp)
    cleanUp().catch(() => undefined) // registered after the end: nothing else would close it
    throw new Interrupted()
  })
  const { promise: aborted, reject } = Promise.withResolvers<never>()
  const interrupt = () => reject(new Interrupted())
  signal.addEventListener('abort', interrupt, { once: true })
  if (signal.aborted) interrupt()
  const [done] = await Promise.allSettled([Promise.race([working, aborted])])
  isOver = true
  const ends: PromiseSettledResult<unknown>[] = [done]
  for (const cleanUp of cleanUps.reverse()) ends.push(...(await Promise.allSettled([cleanUp()])))
  const failed = ends.find((end) => end.status === 'rejected')
  if (failed) throw failed.reason
  return (done as PromiseFulfilledResult<T>).value
}
