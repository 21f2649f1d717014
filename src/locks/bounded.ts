/** How long a lock provider's command may take by default. */
export const ANSWER_WITHIN_MS = 5_000

/** A server, or its connection pool, gave no answer: whether the command was executed is unknown. */
class NoAnswerInTime extends Error {
  override readonly name = 'NoAnswerInTime'
  constructor(readonly afterMs: number) {
    super(`no answer within ${afterMs} ms`)
  }
}

/** The work's own outcome, or NoAnswerInTime; a later outcome is dropped. */
export function bounded<T>(work: Promise<T>, withinMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new NoAnswerInTime(withinMs)), withinMs)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
