import { afterEach } from '@jest/globals'

/** What ends the things that a test has begun, called after it, the last one first. To be called in a `describe`, before what is to end after them. */
export function useEnds(): (() => unknown)[] {
  const ends: (() => unknown)[] = []
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end()
  })
  return ends
}
