import type { Census, TroubleGroup } from '../../../src/phases/index.js'

/** A census that found nothing, but for the given fields. */
export const censusOf = (lifecycle: string, at: Date, fields: Partial<Census> = {}): Census => ({
  ...{
    _id: lifecycle,
    at,
    tookMs: 4,
    everyMs: 5_000,
    by: 'one~1',
    version: '1.0.0',
    phases: [],
    errors: [],
    moreErrors: 0,
  },
  ...{ parks: [], moreParks: 0, waits: [], questions: { documents: { n: 0 }, nearestDeadline: null, ids: [] } },
  ...{ overdue: [], broken: [], loops: [], callbacks: { givenUp: { n: 0 }, ids: [] } },
  ...fields,
})

/** A group of one document with an error, seen an hour before noon. */
export const groupOf = (fields: Partial<TroubleGroup> = {}): TroubleGroup => {
  const at = new Date('2026-12-01T11:00:00Z')
  return {
    ...{ cause: 'c0ffee000000', text: 'no paper', phases: ['Packing'], documents: { n: 1 }, oldest: at, newest: at },
    ...{ firstSeen: at, ids: ['a'] },
    ...fields,
  }
}
