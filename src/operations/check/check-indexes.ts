import type { Collection, Document } from 'mongodb'
import { unsafelySharded } from '../../database/index.js'
import {
  checkPlans,
  collectionExists,
  ensureLockIndexes,
  hasIndex,
  Looks,
  moreIndexes,
  multikeyFields,
  NEVER_SHARDED,
  ServerClock,
  STAND_IN_INDEX,
  unusableLockIndexes,
} from '../../lock/index.js'
import { lookRequestOf } from '../../phases/index.js'
import { systemClock } from '../../time/index.js'
import { rebuildClaimIndex } from '../inspect/rebuild-index.js'
import { type Checked, type CheckResult, type Finding, finding, mendable } from './finding.js'

const MISSING = 'it is missing'

/** Checks that each collection has its indexes, of the right kind, and is on one shard or sharded by `_id`. */
export async function checkIndexes({
  db,
  models,
  collections,
  repair,
}: Omit<Checked, 'termsOf'>): Promise<CheckResult> {
  const unsafe = await unsafelySharded(db, collections, NEVER_SHARDED)
  const findings = unsafe.map((name) =>
    finding(
      `collection ${name}`,
      NEVER_SHARDED.includes(name)
        ? 'it is sharded: no replica starts'
        : 'it is sharded by something else than _id: a claim or an outcome may be lost unseen when a chunk migrates, and no replica starts',
      "keep it on one shard, or shard it by { _id: 'hashed' } if its documents are yours (docs/replica-sets.md)",
    ),
  )
  const orders = new Map(
    collections.map((name) => {
      const own = models.filter(({ collection }) => collection === name)
      return [name, own.flatMap(({ settings }) => moreIndexes(settings))]
    }),
  )
  for (const [name, more] of orders) {
    const collection = db.collection(name)
    if (await collectionExists(collection)) findings.push(...(await unusable(collection, more, repair)))
  }
  const more = [...orders.values()].flat().length
  const said = `2 on each of ${collections.length} collections${more > 0 ? `, and ${more} more that lifecycles ask for` : ''}`
  return { check: 'indexes', said, findings }
}

/** Checks that no array has made the claim index multikey, and that no rebuild of it was left unfinished. */
export async function checkMultikey({ db, collections, repair }: Checked): Promise<CheckResult> {
  const findings: Finding[] = []
  for (const name of collections) {
    const collection = db.collection(name)
    if (!(await collectionExists(collection))) continue
    const found = (await hasIndex(collection, STAND_IN_INDEX)) ? leftover(name) : await multikey(collection)
    if (found) findings.push(await mendable(found, repair, () => rebuildClaimIndex(collection)))
  }
  return { check: 'multikey', said: 'no claim index is multikey', findings }
}

const leftover = (name: string) => ({
  about: `index ${JSON.stringify(STAND_IN_INDEX)} of ${name}`,
  problem: 'it is left over from a rebuild of the claim index that is under way or was interrupted',
  advice: 'finish it: phaselock check --repair',
})

async function multikey(collection: Collection): Promise<Omit<Finding, 'repair'> | undefined> {
  if ((await claimIndexProblem(collection)) !== undefined) return undefined
  if (!(await multikeyFields(collection)).includes('lockedAt')) return undefined
  return {
    about: `claim index of ${collection.collectionName}`,
    problem:
      'an array was once stored in lockedAt, so it is multikey: each look reads a key for every sleeping document',
    advice: 'rebuild it while replicas keep running: phaselock check --repair',
  }
}

/** Checks that claims and looks are bounded scans of the indexes. */
export async function checkQueryPlans({ db, models, termsOf }: Checked): Promise<CheckResult> {
  const serverClock = new ServerClock(systemClock)
  // If no replica has registered yet, the look returns no time: ours is enough, because nothing is claimed by it.
  serverClock.saw(systemClock.now(), systemClock.monotonicMs())
  const there = await Promise.all(models.map(({ collection }) => collectionExists(db.collection(collection))))
  const requests = models.filter((_, i) => there[i]).map((model) => lookRequestOf(model, termsOf(model)))
  const found = await checkPlans({ db, looks: new Looks(db, systemClock, serverClock), serverClock, requests })
  const findings = found
    // The indexes have a check of their own.
    .filter(({ what }) => !/^(index \{|collection )/.test(what))
    .map(({ what, problem, advice }) => finding(what, problem, advice))
  // Three claims stand for those of all phases.
  const asked = requests.reduce((sum, { phases, rules }) => sum + 3 + phases.length + rules.length, 0)
  return { check: 'query plans', said: `${asked} claims and looks explained`, findings }
}

async function unusable(collection: Collection, more: readonly Document[], repair: boolean): Promise<Finding[]> {
  return Promise.all(
    (await unusableLockIndexes(collection, more)).map(({ what, problem, command }) => {
      const found = finding(what, problem, `run ${command}`)
      return problem === MISSING ? mendable(found, repair, () => ensureLockIndexes(collection, {}, more)) : found
    }),
  )
}

/** True if `onClaimIndex` has an index to read by: the claim index, or its stand-in while that is rebuilt. */
export async function hasIndexForClaims(collection: Collection): Promise<boolean> {
  const problem = await claimIndexProblem(collection)
  return problem === undefined || (problem === MISSING && (await hasIndex(collection, STAND_IN_INDEX)))
}

const claimIndexProblem = async (collection: Collection): Promise<string | undefined> =>
  (await unusableLockIndexes(collection)).find(({ key }) => 'lockedAt' in key)?.problem
