/** One line of a shared log, in the order in which its lines were appended. */
export interface Entry {
  readonly lock: string
  readonly who: string
  /** Java has none. */
  readonly fence?: number
  readonly enters: boolean
  /** The lock was granted between these two, by this machine's clock in ms. */
  readonly since?: number
  readonly entered?: number
}

/** What must not be: somebody enters while another is within, leaves where he isn't, or has a fence that isn't higher. */
export function overlaps(entries: readonly Entry[]): string[] {
  const within = new Map<string, string>()
  const fences = new Map<string, number>()
  const wrong: string[] = []
  entries.forEach(({ lock, who, fence, enters }, i) => {
    const there = within.get(lock)
    if (enters && there !== undefined) wrong.push(`line ${i + 1}: ${who} enters ${lock} while ${there} is within`)
    if (!enters && there !== who) wrong.push(`line ${i + 1}: ${who} leaves ${lock}, where ${there ?? 'nobody'} is`)
    if (enters) within.set(lock, who)
    else within.delete(lock)
    if (!enters || fence === undefined) return
    const before = fences.get(lock)
    if (before !== undefined && fence <= before)
      wrong.push(`line ${i + 1}: fence ${fence} of ${lock} comes after ${before}`)
    fences.set(lock, fence)
  })
  return wrong
}

/** Who was granted a lock less than `leastMs` after the one before. */
export function tooEarly(entries: readonly Entry[], leastMs: number): string[] {
  const before = new Map<string, Entry>()
  const wrong: string[] = []
  for (const entry of entries.filter((one) => one.enters)) {
    const last = before.get(entry.lock)
    if (last && entry.entered! < last.since! + leastMs)
      wrong.push(`${entry.who} has ${entry.lock} at ${entry.entered}, ${last.who} had it at ${last.since}`)
    before.set(entry.lock, entry)
  }
  return wrong
}
