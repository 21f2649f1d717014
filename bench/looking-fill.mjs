import { lifecycleOf } from '../dist/index.js'

/** A third of the documents' lifecycles. */
export const KINDS = ['order', 'parcel', 'invoice']
/** A due document with many ahead of it. */
export const WHY_OF = 'order-2880'
const WORKING = ['Creating', 'Packing', 'Shipping', 'Deleting']
const EPOCH = new Date(0)
const PARKED = new Date('9999-12-31T00:00:00Z')
const HOUR_MS = 3_600_000
const BATCH = 2_000
const ERRORS = ['connect ECONNREFUSED 10.0.0.%:443', 'no such printer p%', 'quota of tenant % exceeded', 'out of paper']

/** The graph of each lifecycle. */
const PHASES = {
  Creating: { next: ['Packing', 'Failed'], entry: true },
  Packing: { next: ['Shipping'] },
  Shipping: { next: ['Sent'] },
  Deleting: { next: ['Deleted'] },
  Sent: { rest: true },
  Failed: { rest: true, failed: true },
  Deleted: { final: true, keepFor: '30d' },
}

const RULES = [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }]

/** The shares of a grown system: most documents rest; some are due, wait, fail, are parked, ask, are held, or in an unknown phase. */
const SHARES = [
  [0.65, (base) => ({ ...base, phase: 'Sent', lockedAt: EPOCH })],
  [0.12, (base) => ({ ...base, lockedAt: EPOCH })],
  [0.1, (base, later) => asleep(base, later, { waitingFor: 'a certificate', waitingOn: 'certificate' })],
  [0.08, (base, later, i) => asleep(base, later, { attempts: 3, error: failure(i) })],
  [0.03, (base, _later, i) => withProgress({ ...base, lockedAt: PARKED }, { attempts: 20, error: failure(i) })],
  [0.01, (base, later, i) => asleep(base, later, { question: question(i) })],
  [0.009, (base, later) => ({ ...base, lockedAt: later, lockedBy: 'api-9~dead00#1.1' })],
  [0.001, (base) => ({ ...base, phase: 'Wrapping', lockedAt: EPOCH })],
]

const withProgress = (base, progress) => ({ ...base, progress: { ...base.progress, ...progress } })
const asleep = (base, lockedAt, progress) => withProgress({ ...base, lockedAt }, { resumeAt: lockedAt, ...progress })
const failure = (i) => ({
  name: 'Error',
  message: ERRORS[i % ERRORS.length].replace('%', String(i % 9_973)),
  stack: `Error: x\n${'    at handler (/app/handlers/pack.ts:41:13)\n'.repeat(8)}`,
})
const question = (i) => ({
  ...{ id: `q${i}`, question: 'Ship it?', options: ['yes', 'no'], to: ['ops'], onTimeout: null },
  ...{ askedAt: new Date(), by: 'x', deadline: new Date(Date.now() + 100 * HOUR_MS), times: 1 },
})

/** Fills the collections of all three lifecycles with `documents` together. */
export async function fillForLooks(db, documents) {
  const each = Math.floor(documents / KINDS.length)
  for (const kind of KINDS)
    for (let from = 0; from < each; from += BATCH) {
      const some = Array.from({ length: Math.min(BATCH, each - from) }, (_, i) => documentAt(from + i, kind))
      await db.collection(collectionOf(kind)).insertMany(some, { ordered: false })
    }
}

const collectionOf = (kind) => `${kind[0].toUpperCase()}${kind.slice(1)}`

const waits = (_doc, step) => step.wait('never')

export const lifecycles = KINDS.map((name) =>
  lifecycleOf()
    .define({ name, collection: collectionOf(name), phases: PHASES, rules: RULES })
    .handle({ Creating: waits, Packing: waits, Shipping: waits, Deleting: waits }),
)

/** What operations take for the system in a database. */
export const systemIn = (db) => ({ db, models: lifecycles.map(({ model }) => model), doorbell: 'off' })

function documentAt(i, kind) {
  // The same documents in each run, and conditions that don't go by the order of insertion.
  const share = ((i * 7_919) % 10_000) / 10_000
  const since = new Date(Date.now() - ((i * 104_729) % 240) * HOUR_MS)
  const base = {
    ...{ _id: `${kind}-${i}`, phase: WORKING[i % WORKING.length], address: 'x'.repeat(300), createdAt: since },
    ...{ updatedAt: since, fence: i, progress: { since, at: since, attempts: 0, claims: 0, history: history(since) } },
  }
  const later = new Date(Date.now() + 10 * HOUR_MS + ((i * 31) % 3_600) * 1_000)
  let sum = 0
  const [, made] =
    SHARES.find(([part]) => {
      sum += part
      return share < sum
    }) ?? SHARES.at(0)
  return made(base, later, i)
}

const history = (at) =>
  Array.from({ length: 8 }, (_, i) => ({
    ...{ at, from: 'Creating', to: 'Packing', step: i % 2 ? 'label' : null, outcome: 'again' },
    ...{ reason: 'because of something that is a little longer', by: `api-1~5f3a9c#${i}.1`, ms: 12, count: 1 },
  }))
