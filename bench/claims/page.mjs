/**
 * Candidates that the lanes of one worker share: read a page at a time, each given to one lane, in random order, so that
 * two workers who read the same page seldom try the same one.
 * @param read resolves to the next candidates, none when nothing is left
 */
export function sharedPage(read) {
  let candidates = []
  let reading
  const fill = async () => {
    try {
      candidates = await read()
    } finally {
      reading = undefined
    }
  }
  /** @returns one candidate, `undefined` when none is left */
  return async () => {
    if (candidates.length === 0) {
      reading ??= fill()
      await reading
    }
    const [candidate] = candidates.splice(Math.floor(Math.random() * candidates.length), 1)
    return candidate
  }
}
