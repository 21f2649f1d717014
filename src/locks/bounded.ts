/** Default time limit for a lock provider's command. */
const ANSWER_WITHIN_MS = 5_000

/** The work's own outcome if it arrives in time. A later outcome is dropped, so it is unknown whether the command was executed. */
export function bounded<T>(work: Promise<T>, withinMs = ANSWER_WITHIN_MS): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${withinMs} ms`)), withinMs)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
