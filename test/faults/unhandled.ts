import { afterEach, beforeEach, expect } from '@jest/globals'

/** Fails a test of this file during which a promise was rejected and nobody took it: a replica's process would have died of it. */
export function refuseUnhandledRejections(): void {
  const unhandled: unknown[] = []
  const note = (reason: unknown) => void unhandled.push(reason)
  beforeEach(() => {
    unhandled.length = 0
    process.on('unhandledRejection', note)
  })
  afterEach(async () => {
    await new Promise((resolve) => setImmediate(resolve))
    process.off('unhandledRejection', note)
    expect(unhandled).toEqual([])
  })
}
