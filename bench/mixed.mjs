import { lifecycleOf } from '../dist/index.js'

/** The lifecycle of `memory`, without its handlers. */
export const mixed = lifecycleOf().define({
  name: 'mixed',
  collection: 'Mixed',
  phases: { Creating: { next: ['Gone'] }, Gone: { final: true } },
  backOff: { firstError: '500ms' },
})

const PAYLOAD = 'x'.repeat(500)

/** Of 20 documents 12 have one step, 4 a chain of three, 3 wait, 1 fails once. */
export function mixedDocuments(count) {
  const kindOf = (i) => (i % 20 < 12 ? 'one' : i % 20 < 16 ? 'chain' : i % 20 < 19 ? 'wait' : 'error')
  return Array.from({ length: count }, (_, i) => ({ phase: 'Creating', kind: kindOf(i), payload: PAYLOAD }))
}
