import type { Logger } from 'phaselock'
import { StoreUnavailable } from './errors.js'

/** The longest that a caller waits for the server. */
const ANSWER_WITHIN_MS = 5_000

/** Bounds each command of a store, and reports an outage once: when it begins and when it is over. */
export class Guard {
  private isAway = false

  constructor(
    private readonly kind: string,
    private readonly logger: Logger,
    private readonly withinMs: number = ANSWER_WITHIN_MS,
  ) {}

  /**
   * @param action for the error: `get 'scenario:default:s1'`
   * @throws StoreUnavailable if the server doesn't answer, or with an error
   */
  async ask<T>(action: () => string, work: () => Promise<T>): Promise<T> {
    try {
      const answer = await bounded(work(), this.withinMs)
      this.isBack()
      return answer
    } catch (error) {
      if (isMistake(error)) throw error
      const unavailable = new StoreUnavailable(this.kind, action(), withoutCommand(error))
      this.away(unavailable)
      throw unavailable
    }
  }

  private away(error: StoreUnavailable): void {
    if (this.isAway) return
    this.isAway = true
    this.logger.warn(`the shared state is away: ${error.message}`)
  }

  private isBack(): void {
    if (!this.isAway) return
    this.isAway = false
    this.logger.info(`the shared state (${this.kind}) is back`)
  }
}

/** A mistake in the code, which says nothing about the server. */
const isMistake = (error: unknown) =>
  [TypeError, RangeError, ReferenceError, SyntaxError].some((kind) => error instanceof kind)

/** Errors of ioredis have the command with its arguments, which are values, and messages of Redis may begin to list them. */
function withoutCommand(error: unknown): unknown {
  if (!(error instanceof Error) || !('command' in error)) return error
  const { name, message, stack } = error
  const short = message.replace(/, with args beginning with:.*/s, '')
  return Object.assign(new Error(short), { name, stack: stack?.replace(message, short) })
}

/** The work's own outcome if it comes in time. A later one is dropped, so it isn't known whether the command was executed. */
function bounded<T>(work: Promise<T>, withinMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${withinMs} ms`)), withinMs)
    work.then(
      (answer) => {
        clearTimeout(timer)
        resolve(answer)
      },
      (error) => {
        clearTimeout(timer)
        reject(error)
      },
    )
  })
}
