import { lifecycleOf } from '../dist/index.js'
import { COLLECTION, STEPS } from './workload.mjs'

const gatewayOf = (settings) =>
  lifecycleOf().define({
    name: 'gateway',
    collection: COLLECTION,
    phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
    ...settings,
  })
const gateway = gatewayOf({})

/** Which step of Creating this is, from 1: the engine's own record of it. */
const numberOf = (step) => (step.name === undefined ? 1 : Number(step.name.slice(1)))

/** Six steps without data. */
const bare = {
  async Creating(_doc, step) {
    const number = numberOf(step)
    return number < STEPS ? step.again({ step: `s${number + 1}` }) : step.moveTo('Created')
  },
}
const noop = {
  async Creating(_doc, step) {
    return step.moveTo('Created')
  },
}

/** The engine's contestants: handlers that do nothing but say how the document goes on. */
export const LIFECYCLES = {
  /** Six steps, each storing a value of the document's own. */
  steps: gateway.handle({
    async Creating(doc, step) {
      const number = numberOf(step)
      const set = { receipt: `${doc.name}/${number}` }
      return number < STEPS ? step.again({ step: `s${number + 1}`, set }) : step.moveTo('Created', { set })
    },
  }),
  /** Six steps without data. */
  bare: gateway.handle(bare),
  /** The same, of which events are kept. */
  bareSampled: gatewayOf({ events: 'sampled' }).handle(bare),
  bareFull: gatewayOf({ events: 'full' }).handle(bare),
  /** One step that does nothing. */
  noop: gateway.handle(noop),
  /** The same, and a callback that does nothing. */
  noopCalled: gatewayOf({ callbacks: ['onMoved'] }).handle(noop, { onMoved: () => undefined }),
}
