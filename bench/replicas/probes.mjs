/**
 * What the replicas of `latency` run: handlers that tell the benchmark when they began. A document's `kind` says what is to
 * be told of it; most have none, and are load.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs, probes, TIMED } from '../probes.mjs'

const TELL_EVERY_MS = 100
const SLOW_MS = 200

const tell = (message) => process.send?.(message)
/** Handlers' ends, by `_id`, until the command that records them is sent. */
const ends = new Map()
let handled = 0
let told = 0

setInterval(() => {
  if (handled === told) return
  told = handled
  tell({ handled })
}, TELL_EVERY_MS).unref()

const lifecycle = probes.handle({
  async Creating(doc, step) {
    const outcome = await outcomeOf(doc, step)
    handled += 1
    if (String(doc._id).startsWith(TIMED)) ends.set(doc._id, monotonicMs())
    return outcome
  },
})

async function outcomeOf(doc, step) {
  switch (doc.kind) {
    case 'pick':
      tell({ began: doc.tag, atMs: monotonicMs() })
      // Parked and not moved: a replica looks again soon after a move, which would find the next probe.
      return step.park('measured')
    case 'wait':
      if (!doc.waited) return step.wait('measured', { for: `${doc.forMs}ms`, set: { waited: new Date() } })
      // The server's time against this machine's: the same machine, unless MONGODB_URI says otherwise.
      tell({ woken: 'wait', lateMs: Date.now() - doc.progress.resumeAt.getTime() })
      return step.moveTo('Created')
    case 'crash':
      tell({ woken: 'crash', lateMs: Date.now() - doc.dueAt.getTime() })
      return step.moveTo('Created')
    case 'slow':
      await sleep(SLOW_MS)
      return step.moveTo('Created')
    default:
      return step.moveTo('Created')
  }
}

/** When the command that records a timed document leaves: told by the driver just before it is sent. */
function watchRecords(client) {
  client.on('commandStarted', ({ command, commandName }) => {
    if (ends.size === 0 || commandName === 'find' || commandName === 'aggregate') return
    for (const id of timedIds(command.updates ?? command.ops ?? command.query)) {
      const endedAtMs = ends.get(id)
      if (endedAtMs === undefined) continue
      ends.delete(id)
      tell({ recordMs: monotonicMs() - endedAtMs })
    }
  })
}

function* timedIds(value) {
  if (typeof value === 'string') {
    if (value.startsWith(TIMED)) yield value
  } else if (Array.isArray(value)) {
    for (const one of value) yield* timedIds(one)
  } else if (value && typeof value === 'object' && !value._bsontype) {
    for (const [field, one] of Object.entries(value)) if (field !== 'u') yield* timedIds(one)
  }
}

export default ({ client }) => {
  watchRecords(client)
  return [lifecycle]
}
