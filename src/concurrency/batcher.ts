/** A value, and how to answer its caller. Only the first answer counts. */
interface Asked<Value, Answer> {
  readonly value: Value
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

/** A batch in flight. */
export interface Batch<Value, Answer> {
  /** Its values in the order of the calls, each to be answered by itself where their answers differ. */
  readonly asked: readonly Asked<Value, Answer>[]
  /** Lets the next batch go before this one has ended, so that it keeps no other waiting. */
  readonly back: () => void
}

/** The result of a batch that has answered each of its values by itself. */
export const ANSWERED = Symbol('answered')

/** Sends a batch. Its result, or its error, answers each value that it hasn't answered by itself. */
type Send<Value, Answer> = (values: readonly Value[], batch: Batch<Value, Answer>) => Promise<Answer | typeof ANSWERED>

/**
 * Collects the values of one turn of the event loop and sends them together. While as many batches are in flight as may be, the next one fills. It
 * is sent in the turn after one of them is back.
 *
 * Invariants: each value is in exactly one batch, in the order of the calls. Each caller is answered once its batch has ended, if not before.
 */
export class Batcher<Value, Answer = void> {
  private waiting: Asked<Value, Answer>[] = []
  private inFlight = 0
  private isScheduled = false

  /** @param most the most batches in flight, asked before each. Default: any number */
  constructor(
    private readonly send: Send<Value, Answer>,
    private readonly most: () => number = () => Number.POSITIVE_INFINITY,
  ) {}

  ask(value: Value): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ value, resolve, reject })
      this.schedule()
    })
  }

  /** The number of values that wait and of batches in flight. */
  get open(): number {
    return this.waiting.length + this.inFlight
  }

  private schedule(): void {
    if (this.isScheduled || this.waiting.length === 0 || this.inFlight >= this.most()) return
    this.isScheduled = true
    setImmediate(() => {
      this.isScheduled = false
      void this.flush()
    })
  }

  private async flush(): Promise<void> {
    const asked = this.waiting
    this.waiting = []
    this.inFlight += 1
    let isInFlight = true
    const back = () => {
      if (isInFlight) this.inFlight -= 1
      isInFlight = false
      this.schedule()
    }
    const values = asked.map(({ value }) => value)
    try {
      const answer = await this.send(values, { asked, back })
      if (answer !== ANSWERED) for (const { resolve } of asked) resolve(answer)
    } catch (error) {
      for (const { reject } of asked) reject(error)
    }
    back()
  }
}
