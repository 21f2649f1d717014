import { Interrupted } from '../run-demo.js'

export type CleanUp = () => Promise<unknown>

/** What is to be done when a run ends, the latest first, each whatever becomes of the others. */
export class CleanUps {
  private readonly waiting: CleanUp[] = []
  private over = false

  /** @throws Interrupted when the run has ended meanwhile: then it is done at once */
  add(cleanUp: CleanUp): void {
    if (!this.over) {
      this.waiting.push(cleanUp)
      return
    }
    cleanUp().catch(() => undefined)
    throw new Interrupted()
  }

  /** @throws the first failure, after all were done */
  async run(): Promise<void> {
    this.over = true
    const failures: unknown[] = []
    for (const cleanUp of this.waiting.splice(0).reverse()) {
      await cleanUp().catch((error: unknown) => failures.push(error))
    }
    if (failures.length > 0) throw failures[0]
  }
}
