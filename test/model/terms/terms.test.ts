import { describe, expect, test } from '@jest/globals'
import { lockTimeoutAt } from '../../../src/lock/index.js'
import { explore } from '../explore.js'
import { LONG_MS, SHORT_MS, TERMS_PROTECTED, TermsMachine, type TermsProtections } from './machine.js'

const LONGER = { from: SHORT_MS, to: LONG_MS }
const SHORTER = { from: LONG_MS, to: SHORT_MS }

describe('a lockTimeout that is changed', () => {
  test.each([
    ['longer', LONGER],
    ['shorter', SHORTER],
  ])('%s: nobody takes a document from a holder who believes in its lease', (_name, change) => {
    expect(explore(new TermsMachine(TERMS_PROTECTED, change)).broken).toEqual({})
  })

  const atOnce: TermsProtections['lockTimeoutAt'] = ({ lockTimeout }, now) => lockTimeoutAt({ lockTimeout }, now)
  /** As if it had been announced so much earlier. */
  const handedOverEarlier =
    (ms: number): TermsProtections['lockTimeoutAt'] =>
    (record, now) => {
      const since = record.lockTimeoutSince
      return lockTimeoutAt(
        since instanceof Date ? { ...record, lockTimeoutSince: new Date(since.getTime() - ms) } : record,
        now,
      )
    }

  test.each<[string, typeof LONGER, Partial<TermsProtections>]>([
    ['a handover, longer', LONGER, { lockTimeoutAt: atOnce }],
    ['a handover, shorter', SHORTER, { lockTimeoutAt: atOnce }],
    ['most of the handover, longer', LONGER, { lockTimeoutAt: handedOverEarlier(7_500) }],
    ['most of the handover, shorter', SHORTER, { lockTimeoutAt: handedOverEarlier(7_500) }],
    ['an age of what a claim goes by', LONGER, { claimsHaveAge: false }],
    ['an age of what a renewal goes by', SHORTER, { renewalsHaveAge: false }],
  ])('without %s: I6', (_name, change, without) => {
    const { broken } = explore(new TermsMachine({ ...TERMS_PROTECTED, ...without }, change))
    expect(Object.keys(broken)).toEqual(['I6'])
  })
})
