import { type Attempt, type Candidates, eachList, type SelectionPolicy } from './selection.js'

/** A loss of more than this part of the candidates is no accident. */
const MUCH = 0.05
const SPREAD = 4

/**
 * Whom a replica doesn't know to share with (a replica of an older version, one that is ticked by hand) it only meets by its losses: two
 * that pick alike lose half of their candidates. So after a large loss the next pick begins at a random place of four times as many.
 */
export class Contention implements SelectionPolicy {
  private readonly contended = new Set<string>()

  /** @param isShared whether others are known, and left their share: then nothing is spread */
  constructor(
    private readonly isShared: () => boolean,
    private readonly random: () => number,
  ) {}

  reach(phase: string) {
    return this.isSpread(phase) ? { times: SPREAD } : {}
  }

  choose(phase: string, candidates: Candidates): Candidates {
    if (!this.isSpread(phase)) return candidates
    return eachList(candidates, (documents) => {
      const start = Math.floor(this.random() * documents.length)
      return [...documents.slice(start), ...documents.slice(0, start)]
    })
  }

  learn(phase: string, { tried, missed }: Attempt): void {
    if (tried.length > 1 && missed.length > tried.length * MUCH) this.contended.add(phase)
    else this.contended.delete(phase)
  }

  private isSpread(phase: string): boolean {
    return this.contended.has(phase) && !this.isShared()
  }
}
