/** Runs works one at a time, in the order of the calls. A work that fails doesn't keep the next one from running. */
export class Mutex {
  private last: Promise<unknown> = Promise.resolve()
  private count = 0

  /** The number of works that wait or run. */
  get open(): number {
    return this.count
  }

  run<T>(work: () => T | Promise<T>): Promise<T> {
    this.count += 1
    const done = this.last.then(work).finally(() => {
      this.count -= 1
    })
    this.last = done.catch(() => undefined)
    return done
  }

  /** Resolves when the works so far have ended; never rejects. */
  async idle(): Promise<void> {
    await this.last
  }
}
