import { afterEach, describe, expect, test } from '@jest/globals'
import { holderIdentity } from '../../src/locks/acquisition.js'
import { LockProviderUnavailable } from '../../src/locks/errors.js'
import type { LockStore } from '../../src/locks/lock-store.js'
import { NamedLocks } from '../../src/locks/named-locks.js'
import { eventually } from '../support/database.js'

/** A store whose answers can be lost, and the same one from beside. */
export interface Lossy {
  store: LockStore
  beside: LockStore
  /** The next acquisition is granted, and its answer lost. Resolves when that has happened. */
  loseAnswer(): Promise<unknown>
}

/** Closes something after the test. */
export type Closes = <T>(one: T, close: (one: T) => unknown) => T

/**
 * The invariant: nobody holds an acquisition whose answer was lost for longer than it takes to free it, whoever asks, and also when this
 * process never asks for the name again. The server is looked at from beside.
 */
export function describeLostAnswer(kind: string, lossy: (closes: Closes) => Promise<Lossy>): void {
  const closing: (() => unknown)[] = []
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close()
  })
  const closes: Closes = (one, close) => {
    closing.push(() => close(one))
    return one
  }

  describe(`an acquisition in ${kind} whose answer was lost`, () => {
    test('is freed in the background, and the error says what is known', async () => {
      const { store, beside, loseAnswer } = await lossy(closes)
      const locks = closes(new NamedLocks(store, holderIdentity('cut')), (one) => one.close())
      const lost = loseAnswer()
      const asked = locks.lock({ name: 'cut', lockAtMostFor: '1h' })
      await expect(asked).rejects.toThrow(LockProviderUnavailable)
      await expect(asked).rejects.toThrow(
        /to lock 'cut', got: .+; nothing is run; it may have been granted all the same: if so, it is freed in the background, and expires after 1 h; try again when the server is back/,
      )
      await lost
      // It had been granted: its fence is there, or its record.
      const others = new NamedLocks(beside, holderIdentity('beside'))
      const next = await eventually(async () => (await others.lock({ name: 'cut', lockAtMostFor: '1h' })) ?? false)
      expect(next).toMatchObject({ lockedBy: expect.stringMatching(/^beside~/) })
    })
  })
}
