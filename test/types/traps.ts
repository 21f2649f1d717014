import type { Step } from '../../src/phases/index.js'
import { lifecycleOf } from '../../src/phases/index.js'
import { gateway } from './gateway.js'

type D = { _id: string; state?: 'Running' | 'Deleted'; n: number }
const loose = { A: { next: ['B'] }, B: { final: true } }
// @ts-expect-error trap: kept in a variable first, the literals widen ...
lifecycleOf<D>().define({ name: 'x', collection: 'x', phases: loose })
const tight = { A: { next: ['B'] }, B: { final: true } } as const
lifecycleOf<D>().define({ name: 'x', collection: 'x', phases: tight }) // ... `as const` repairs it
// trap: handlers inside the phases object, one call: `step` is contextually typed before the graph is known, so `next` is never
declare function one<
  const G extends {
    readonly [P in keyof G]: {
      readonly next: readonly (keyof G)[]
      readonly handle: (
        doc: D,
        step: { moveTo<Q extends G[P] extends { readonly next: readonly (infer N)[] } ? N : never>(q: Q): { to: Q } },
      ) => { to: unknown }
    }
  },
>(phases: G): G
// @ts-expect-error a legal move is refused
one({ A: { next: ['B'], handle: (_d, s) => s.moveTo('B') }, B: { next: [], handle: (_d, s) => s.moveTo('A') } })
// trap: an if/else of outcomes must unify without annotation, also through a helper and await
gateway.handle({
  async Creating(doc, step) {
    const r = doc.domain ? step.moveTo('Created') : step.park('no')
    await Promise.resolve()
    return r
  },
  async Deleting(doc, step) {
    try {
      return await go(step)
    } catch {
      return step.wait('retry')
    } finally {
      void doc
    }
  },
})
async function go(step: Step<'Deleted', { name: string }>) {
  return step.moveTo('Deleted')
}
// trap: a decorated parameter whose type is imported as a value import of an interface fails with TS1272; `import type` is needed
export class Ok {
  @gateway.OnPhase('Deleting') async d(_doc: typeof gateway.$doc, step: Step<'Deleted', typeof gateway.$doc>) {
    return step.moveTo('Deleted')
  }
}
// hole: `throw` only, and `any`, pass
gateway.handle({
  Creating: async () => {
    throw new Error('x')
  },
  Deleting: async (_d, s) => (s as any).moveTo('Nowhere'),
})
