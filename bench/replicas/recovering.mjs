/**
 * What the replicas of `recovery` run. BENCH_FATES names the lifecycles; a victim's handlers (BENCH_VICTIM) hang until they
 * are told to go on, a survivor's end at once. Each handler has an effect on the world outside, a line in the ledger
 * BENCH_LEDGER with its fence, written before anything else goes on: also a process that is killed has had its effects.
 */
import { appendFileSync } from 'node:fs'
import { monotonicMs } from '../probes.mjs'
import { recovering } from '../recoveries.mjs'

const { BENCH_FATES, BENCH_LEDGER, BENCH_VICTIM } = process.env
const isVictim = BENCH_VICTIM === 'yes'

let goOn
const told = new Promise((resolve) => {
  goOn = resolve
})
process.on('message', (message) => {
  if (message.goOn) goOn()
})

function note(what, fate, step, doc) {
  const line = { what, fate, document: String(doc._id), fence: doc.fence, victim: isVictim, atMs: monotonicMs() }
  appendFileSync(BENCH_LEDGER, `${JSON.stringify(line)}\n`)
  process.send?.({ ...line, aborted: step.signal?.aborted })
}

export default BENCH_FATES.split(',').map((fate) =>
  recovering(fate).handle({
    async Creating(doc, step) {
      note('begin', fate, step, doc)
      if (isVictim) await told
      note('effect', fate, step, doc)
      return step.moveTo('Created', { set: { by: isVictim ? 'victim' : 'survivor' } })
    },
  }),
)
