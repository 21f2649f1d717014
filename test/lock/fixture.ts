import { expect } from '@jest/globals'
import { type Collection, type Db, type Document, MongoClient } from 'mongodb'
import { EndWriter, type EndWriterOptions } from '../../src/lock/end/end-writer.js'
import {
  Claimant,
  type Claimed,
  type ClaimOrder,
  Claims,
  type EndKind,
  ensureLockIndexes,
  type Lease,
  PhaseMemory,
  ServerClock,
  type StepEnd,
  type Terms,
  termsOf,
  type Verdict,
  type WorkSplit,
} from '../../src/lock/index.js'
import { replicaIdentity } from '../../src/options/index.js'
import { type Clock, systemClock } from '../../src/time/index.js'

export const PHASE = 'Working'
export const LOCK_TIMEOUT_MS = 30_000
export const TERMS: Terms = termsOf(LOCK_TIMEOUT_MS)

/** The collection that a test locks in, with the two indexes. */
export async function lockedCollection(db: Db, name = 'Thing'): Promise<Collection> {
  const collection = db.collection(name, { writeConcern: { w: 'majority', journal: true } })
  await ensureLockIndexes(collection)
  return collection
}

/** The server's time, from one command that reads it. */
export async function serverNow(collection: Collection): Promise<Date> {
  const probe = collection.db.collection('probe')
  await probe.updateOne({ _id: 'now' as never }, [{ $set: { now: '$$NOW' } }], { upsert: true })
  return (await probe.findOne({ _id: 'now' as never }))!['now']
}

/** A moment relative to the server's clock, as an expression for {@link put}. */
export const ago = (ms: number): Document => ({ $subtract: ['$$NOW', ms] })

/** Stores documents whose fields may be expressions over the server's clock (`ago(...)`); every other value is literal. */
export async function put(collection: Collection, ...documents: Document[]): Promise<void> {
  for (const { _id, ...fields } of documents) {
    await collection.updateOne({ _id }, [{ $replaceWith: { $mergeObjects: [{ _id: '$_id' }, fields] } }], {
      upsert: true,
    })
  }
}

/** A monotonic clock that stands still until it is told to go on. */
export class ManualClock implements Clock {
  private ms = 1_000_000
  now(): Date {
    return systemClock.now()
  }
  monotonicMs(): number {
    return this.ms
  }
  advance(ms: number): void {
    this.ms += ms
  }
}

export interface ReplicaOfTest {
  readonly identity: string
  readonly claims: ClaimsByName
  readonly serverClock: ServerClock
  readonly clock: Clock
}

/** Claims of phases by their names, with one memory for each phase. */
export class ClaimsByName extends Claims {
  private readonly memories = new Map<string, PhaseMemory>()

  override claimBatch(
    phase: string | PhaseMemory,
    ...how: Parameters<Claims['claimBatch']> extends [unknown, ...infer How] ? How : never
  ) {
    return super.claimBatch(this.memoryOf(phase), ...how)
  }

  override claimNamed(
    phase: string | PhaseMemory,
    ...what: Parameters<Claims['claimNamed']> extends [unknown, ...infer What] ? What : never
  ) {
    return super.claimNamed(this.memoryOf(phase), ...what)
  }

  private memoryOf(phase: string | PhaseMemory): PhaseMemory {
    if (typeof phase !== 'string') return phase
    const memory = this.memories.get(phase) ?? new PhaseMemory(phase)
    this.memories.set(phase, memory)
    return memory
  }
}

/** What a replica claims with, its knowledge of the server's clock up to date. */
export async function claimer(
  collection: Collection,
  options: {
    terms?: Terms
    /** In place of `terms`: those at each moment. */
    termsOf?: () => Terms
    keepTermsFresh?: () => Promise<void>
    clock?: Clock
    random?: () => number
    name?: string
    order?: ClaimOrder
    isOver?: () => boolean
  } = {},
): Promise<ReplicaOfTest> {
  const { terms = TERMS, clock = systemClock, random, name = 'r', order, isOver, keepTermsFresh } = options
  const serverClock = new ServerClock(clock)
  const sentAtMs = clock.monotonicMs()
  serverClock.saw(await serverNow(collection), sentAtMs)
  const identity = replicaIdentity(name)
  const claims = new ClaimsByName({
    collection,
    terms: options.termsOf ?? (() => terms),
    keepTermsFresh,
    claimant: new Claimant(identity),
    clock,
    serverClock,
    random,
    order,
    isOver,
  })
  return { identity, claims, serverClock, clock }
}

/** Claims one document by hand, as a test's starting point: the fixture's own replica unless another is given. */
export async function claimed(collection: Collection, replica?: ReplicaOfTest, phase = PHASE): Promise<Claimed> {
  const { claims } = replica ?? (await claimer(collection))
  const result = await claims.claimBatch(phase, 1)
  if (!result.claimed[0]) throw new Error('expected a document to be due, nothing was claimed')
  return result.claimed[0]
}

/** Stores documents and claims all of them: their leases, in their order. */
export async function held(collection: Collection, documents: Document[]): Promise<Lease[]> {
  await collection.insertMany(documents.map((document, _id) => ({ _id: _id as never, phase: PHASE, ...document })))
  const { claims } = await claimer(collection)
  const { claimed } = await claims.claimBatch(PHASE, documents.length)
  expect(claimed).toHaveLength(documents.length)
  return claimed.map((one) => one.lease).sort((a, b) => Number(a.id) - Number(b.id))
}

export const blank = (n: number): Document[] => Array.from({ length: n }, () => ({}))

/** What became of ends that were written together. */
export async function verdictsOf(collection: Collection, ends: StepEnd[]): Promise<Verdict['kind'][]> {
  const verdicts = await writer(collection).write(ends)
  return ends.map((end) => verdicts.get(end)!.kind)
}

export function writer(collection: Collection, more: Partial<EndWriterOptions> = {}): EndWriter {
  return new EndWriter({ collection, terms: () => TERMS, clock: systemClock, ...more })
}

export function endOf(lease: Lease, end: EndKind, more: Partial<StepEnd> = {}): StepEnd {
  return { lease, end, ms: 5, wakeBy: null, stale: [], ...more }
}

export const again = (nextStep: string | null = 'next'): EndKind => ({
  kind: 'again',
  step: null,
  nextStep,
  keepsLease: true,
})
export const wait = (forMs: number | null = null, reason = 'not ready', step: string | null = null): EndKind => ({
  kind: 'wait',
  step,
  reason,
  forMs,
})
export const moveTo = (to: string): EndKind => ({
  kind: 'moveTo',
  step: null,
  to,
  by: 'handler',
  reason: null,
})
export const unlock: EndKind = { kind: 'again', step: null, nextStep: null, keepsLease: false }
export const park: EndKind = { kind: 'park', step: null, reason: 'needs a person', error: null }
export const failed: EndKind = { kind: 'error', step: null, error: { name: 'Error', message: 'it broke' } }
export const released: EndKind = { kind: 'released', step: null }
export const checkpoint: EndKind = { kind: 'checkpoint', step: null }

/** Each way in which a handler's step ends, and a checkpoint. */
export const ENDS: readonly [string, EndKind][] = [
  ['again', again()],
  ['unlock', unlock],
  ['wait', wait()],
  ['move', moveTo('Next')],
  ['park', park],
  ['error', failed],
  ['checkpoint', checkpoint],
]

/** A document with its `_id`, which must exist. */
export async function read(collection: Collection, id: unknown): Promise<Document> {
  const document = await collection.findOne({ _id: id as never })
  if (!document) throw new Error(`expected document ${String(id)} to exist`)
  return document
}

/** A client over another address, such as a proxy's; the test closes it. */
export async function clientAt(uri: string, more: object = {}): Promise<MongoClient> {
  return new MongoClient(uri, { serverSelectionTimeoutMS: 20_000, ...more }).connect()
}

/** The collection, but what others do in the moment before (or after) one of its commands is executed comes in between. */
export function interrupted(
  collection: Collection,
  method: 'updateMany' | 'deleteMany' | 'findOneAndUpdate',
  { before, after }: { before?: () => unknown; after?: () => unknown },
): Collection {
  return new Proxy(collection, {
    get(target, name) {
      const found = Reflect.get(target, name)
      if (typeof found !== 'function') return found
      if (name !== method) return found.bind(target)
      return async (...args: unknown[]) => {
        await before?.()
        const result = await found.apply(target, args)
        await after?.()
        return result
      }
    },
  })
}

const memories = new WeakMap<WorkSplit, PhaseMemory>()

/** What a share has seen of the phase. */
export function memoryFor(share: WorkSplit): PhaseMemory {
  const memory = memories.get(share) ?? new PhaseMemory(PHASE)
  memories.set(share, memory)
  return memory
}

/** What a share takes of lists of due documents, each list oldest first. */
export function partOf(share: WorkSplit, lists: readonly (readonly Document[])[], places: number) {
  const candidates = { lists: lists.map((documents) => ({ least: 0, documents })), retries: [] }
  const { lists: chosen, left = 0, againInMs = 0 } = share.choose(memoryFor(share), candidates, places)
  return { takes: chosen.map(({ documents }) => documents), left, againInMs }
}
