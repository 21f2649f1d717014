import { lifecycleOf } from '../../src/phases/index.js'
import { gateway } from './gateway.js'

const of = lifecycleOf<{ _id: string; state?: 'Running' | 'Deleted'; n: number }>()
// @ts-expect-error a next that does not exist
of.define({ name: 'x', collection: 'x', phases: { A: { next: ['C'] }, B: { final: true } } })
of.define({
  name: 'x',
  collection: 'x',
  // @ts-expect-error a deadline to nowhere
  phases: { A: { next: ['B'], deadline: { after: '1m', moveTo: 'Z' } }, B: { final: true } },
})
of.define({
  name: 'x',
  collection: 'x',
  // @ts-expect-error a deadline that sets an unknown state
  phases: { A: { next: ['B'], deadline: { after: '1m', moveTo: 'B', setState: 'Gone' } }, B: { final: true } },
})
of.define({
  name: 'x',
  collection: 'x',
  phases: { A: { next: ['B'] }, B: { final: true } },
  // @ts-expect-error a rule from an unknown phase
  rules: [{ when: 'Deleted', from: ['Q'], moveTo: 'B' }],
})
of.define({
  name: 'x',
  collection: 'x',
  phases: { A: { next: ['B'] }, B: { final: true } },
  // @ts-expect-error a rule for an unknown state
  rules: [{ when: 'Gone', from: ['A'], moveTo: 'B' }],
})
// @ts-expect-error a duration without unit
of.define({ name: 'x', collection: 'x', phases: { A: { next: ['B'] }, B: { final: true } }, lockTimeout: '30' })
// @ts-expect-error an unknown setting
of.define({ name: 'x', collection: 'x', phases: { A: { next: ['B'] }, B: { final: true } }, locktimeout: '30s' })
const ab = of.define({
  name: 'x',
  collection: 'x',
  phases: { A: { next: ['B'] }, B: { next: ['C'] }, C: { final: true } },
})
// @ts-expect-error a handler is missing
ab.handle({ A: async (_d, s) => s.moveTo('B') })
// @ts-expect-error a typo
ab.handle({ A: async (_d, s) => s.moveTo('Bb'), B: async (_d, s) => s.again() })
// @ts-expect-error C exists, but A may not go there
ab.handle({ A: async (_d, s) => s.moveTo('C'), B: async (_d, s) => s.again() })
ab.handle({
  // @ts-expect-error a path without an outcome
  A: async (d, s) => {
    if (d.n) return s.again()
  },
  B: async (_d, s) => s.again(),
})
// @ts-expect-error returns nothing
ab.handle({ A: async () => {}, B: async (_d, s) => s.again() })
// @ts-expect-error a resting or final phase has no handler
ab.handle({ A: async (_d, s) => s.again(), B: async (_d, s) => s.again(), C: async (_d, s) => s.again() })
// @ts-expect-error a field that the document has not
ab.handle({ A: async (_d, s) => s.again({ set: { m: 1 } }), B: async (_d, s) => s.again() })
// @ts-expect-error a reserved field
ab.handle({ A: async (_d, s) => s.again({ set: { phase: 'B' } }), B: async (_d, s) => s.again() })
class Bad {
  // @ts-expect-error the method's outcome goes where Deleting may not go
  @gateway.OnPhase('Deleting') async a(_d: typeof gateway.$doc, s: typeof gateway.$step.Creating) {
    return s.moveTo('Created')
  }
  // @ts-expect-error no handler for a resting phase
  @gateway.OnPhase('Created') async b(_d: typeof gateway.$doc, s: typeof gateway.$step.Creating) {
    return s.again()
  }
  // @ts-expect-error a method that may end without an outcome
  @gateway.OnPhase('Creating') async c(_d: typeof gateway.$doc, s: typeof gateway.$step.Creating) {
    if (s.attempt) return s.again()
  }
  // @ts-expect-error wrong document type
  @gateway.OnPhase('Creating') async d(_d: { nope: number }, s: typeof gateway.$step.Creating) {
    return s.again()
  }
}
void Bad
