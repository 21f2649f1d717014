const MOST_NAMES = 1_000
const MOST_OF_A_NAME = 16

/**
 * Acquisitions whose answer was never heard: the server may have granted them, and nobody knows. Before this process asks
 * for the name again it frees them by their tokens, so that an outage costs no lockAtMostFor.
 */
export class AbandonedAcquisitions {
  private readonly tokens = new Map<string, Set<string>>()

  add(name: string, token: string): void {
    const ofName = this.tokens.get(name) ?? new Set()
    if (this.tokens.size >= MOST_NAMES) this.tokens.delete(this.tokens.keys().next().value!)
    if (ofName.size >= MOST_OF_A_NAME) ofName.delete(ofName.values().next().value!)
    this.tokens.set(name, ofName.add(token))
  }

  /** @param free a write that touches this token's acquisition only */
  async clear(name: string, free: (token: string) => Promise<unknown>): Promise<void> {
    const ofName = this.tokens.get(name)
    if (!ofName) return
    for (const token of [...ofName]) {
      await free(token)
      ofName.delete(token)
    }
    if (ofName.size === 0 && this.tokens.get(name) === ofName) this.tokens.delete(name)
  }
}
