import { lifecycleOf } from '../../src/phases/index.js'

interface Site {
  _id: string
  state?: 'Running' | 'Deleted'
  pages?: number
}

const of = lifecycleOf<Site>()
const phases = { A: { next: ['B'] }, B: { rest: true }, C: { next: ['B'] } } as const

// Entry phases: any that isn't final, also more than one
of.define({
  name: 'x',
  collection: 'x',
  phases: { A: { next: ['B'] }, B: { rest: true, entry: true }, C: { next: ['B'], entry: true } },
})
of.define({
  name: 'x',
  collection: 'x',
  // @ts-expect-error a final phase can't be an entry
  phases: { A: { next: ['B'] }, B: { final: true, entry: true } },
})
of.define({
  name: 'x',
  collection: 'x',
  // @ts-expect-error a resting phase names no next
  phases: { A: { next: ['B'] }, B: { rest: true, next: ['A'] } },
})
of.define({
  name: 'x',
  collection: 'x',
  // @ts-expect-error only a final phase is kept for a while
  phases: { A: { next: ['B'], keepFor: '1h' }, B: { final: true } },
})
of.define({
  name: 'x',
  collection: 'x',
  // @ts-expect-error a final phase has no deadline
  phases: { A: { next: ['B'] }, B: { final: true, deadline: { after: '1m', moveTo: 'A' } } },
})

// Settings
of.define({
  name: 'x',
  collection: 'x',
  phases,
  lockTimeout: '10s',
  stepTimeout: '90s',
  maxAttempts: 3,
  maxClaims: 5,
  concurrency: 8,
  fields: { progress: '_phaselock' },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'C', setState: 'Running' }],
})
// @ts-expect-error concurrency is a number
of.define({ name: 'x', collection: 'x', phases, concurrency: '8' })
// @ts-expect-error only progress can be renamed
of.define({ name: 'x', collection: 'x', phases, fields: { lockedAt: 'locked' } })
// @ts-expect-error a duration of an unknown unit
of.define({ name: 'x', collection: 'x', phases, stepTimeout: '5 minutes' })
of.define({
  name: 'x',
  collection: 'x',
  phases,
  // @ts-expect-error a rule can set only a state of the document
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'C', setState: 'Gone' }],
})
// @ts-expect-error a state of a document is a text
lifecycleOf<{ state?: number }>()
// A document may do without a state; then there are no rules for it
const stateless = lifecycleOf<{ _id: string; pages: number }>()
stateless.define({ name: 'x', collection: 'x', phases })
stateless.define({
  name: 'x',
  collection: 'x',
  phases,
  // @ts-expect-error no such state
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'C' }],
})
// The fields by which claims are ordered are the document's
stateless.define({ name: 'x', collection: 'x', phases, priorityBy: 'pages', fairBy: '_id' })
// @ts-expect-error it has no such field
stateless.define({ name: 'x', collection: 'x', phases, fairBy: 'tenantId' })
