/** How long a command of a lock provider may take unless it is told otherwise. */
export const ANSWER_WITHIN_MS = 5_000

/** A server, or the pool in front of it, gave no answer: whether the command was executed is unknown. */
class NoAnswerInTime extends Error {
  override readonly name = 'NoAnswerInTime'
  constructor(readonly afterMs: number) {
    super(`no answer within ${afterMs} ms`)
  }
}

/** The work's own outcome, or NoAnswerInTime; what comes after that is dropped. */
export function bounded<T>(work: Promise<T>, withinMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new NoAnswerInTime(withinMs)), withinMs)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
