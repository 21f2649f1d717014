/**
 * What the replicas of `memory` run: a bit of everything, with documents that are removed at the end, so that the
 * collection stays small however long it runs. With --expose-gc it tells its heap after a collection when asked.
 */
import { mixed } from '../mixed.mjs'

const TELL_EVERY_MS = 100
const tell = (message) => process.send?.(message)
let done = 0
let told = 0

setInterval(() => {
  if (done === told) return
  told = done
  tell({ done })
}, TELL_EVERY_MS).unref()

process.on('message', async (message) => {
  if (!message.heap) return
  await globalThis.gc({ type: 'major', execution: 'async' })
  globalThis.gc()
  tell({ heapMb: process.memoryUsage().heapUsed / 2 ** 20 })
})

const ended = (outcome) => {
  done += 1
  return outcome
}

export default [
  mixed.handle({
    async Creating(doc, step) {
      switch (doc.kind) {
        case 'chain':
          return step.name === 'third'
            ? ended(step.moveTo('Gone'))
            : step.again({ step: next(step.name), set: { seen: step.name ?? 'first' } })
        case 'wait':
          return doc.waited ? ended(step.moveTo('Gone')) : step.wait('a while', { for: '500ms', set: { waited: true } })
        case 'error':
          if (doc.progress.attempts === 0) throw new Error('the first attempt fails')
          return ended(step.moveTo('Gone'))
        default:
          return ended(step.moveTo('Gone'))
      }
    },
  }),
]

const next = (name) => (name === undefined ? 'second' : 'third')
