/** Runs works one at a time, in the order of the calls. A work that fails doesn't keep the next one from running. */
export class Mutex {
  private last: Promise<unknown> = Promise.resolve()

  run<T>(work: () => T | Promise<T>): Promise<T> {
    const done = this.last.then(work)
    this.last = done.catch(() => undefined)
    return done
  }

  /** Resolves when the works so far have ended; never rejects. */
  async idle(): Promise<void> {
    await this.last
  }
}
