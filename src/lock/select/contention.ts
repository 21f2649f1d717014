import type { PhaseMemory } from './phase-memory.js'
import { type Attempt, type Candidates, eachList, type SelectionPolicy } from './selection.js'

/** Losing more than this share of the candidates is no accident. */
const MUCH = 0.05
const SPREAD = 4

/**
 * A policy against contention. A replica may compete with others that it doesn't know of (of an older version, or ticked by hand). It notices
 * them only by its losses: two that pick alike lose half of their candidates. So after a large loss the next pick starts at a random place among
 * four times the number of candidates.
 */
export class Contention implements SelectionPolicy {
  /** @param isShared true if others are known and are left their share: then picks aren't spread */
  constructor(
    private readonly isShared: () => boolean,
    private readonly random: () => number,
  ) {}

  reach(memory: PhaseMemory) {
    return this.isSpread(memory) ? { times: SPREAD } : {}
  }

  choose(memory: PhaseMemory, candidates: Candidates): Candidates {
    if (!this.isSpread(memory)) return candidates
    return eachList(candidates, (documents) => {
      const start = Math.floor(this.random() * documents.length)
      return [...documents.slice(start), ...documents.slice(0, start)]
    })
  }

  learn(memory: PhaseMemory, { tried, missed }: Attempt): void {
    memory.isContended = tried.length > 1 && missed.length > tried.length * MUCH
  }

  private isSpread({ isContended }: PhaseMemory): boolean {
    return isContended && !this.isShared()
  }
}
