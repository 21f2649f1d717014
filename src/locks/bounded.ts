/** How long a lock provider's command may take by default. */
const ANSWER_WITHIN_MS = 5_000

/** The work's own outcome, if it comes in time; a later one is dropped, and whether the command was executed is unknown. */
export function bounded<T>(work: Promise<T>, withinMs = ANSWER_WITHIN_MS): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${withinMs} ms`)), withinMs)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
