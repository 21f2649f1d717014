import type { Document } from 'mongodb'
import {
  missingRights,
  protocolCollection,
  type Rights,
  requireSafeSharding,
  requireServerSemantics,
  requireServerVersion,
} from '../../../database/index.js'
import { DOORBELL_COLLECTION } from '../../../doorbell/index.js'
import {
  BadQueryPlan,
  CENSUS_COLLECTION,
  checkPlans,
  collectionExists,
  DUTIES_COLLECTION,
  describeFinding,
  ensureLockIndexes,
  FLOWS_COLLECTION,
  LIFECYCLES_COLLECTION,
  LIMITS_COLLECTION,
  type LookRequest,
  type Looks,
  moreIndexes,
  NEVER_SHARDED,
  REPLICAS_COLLECTION,
  type Terms,
  unparkBugs,
  unusableLockIndexes,
} from '../../../lock/index.js'
import { typed } from '../../../options/index.js'
import { InvalidLifecycle, MissingIndexes } from '../../errors/errors.js'
import { type LifecycleModel, workingPhases } from '../../model/model.js'
import { threadOf } from '../../threads/index.js'
import type { Environment } from '../context/environment.js'

export interface StartChecksOptions {
  readonly looks: Looks
  readonly requests: () => readonly LookRequest[]
  readonly terms: (model: LifecycleModel) => Terms
}

/** Runs all checks of `Replica.prepare`, and throws its errors. */
export async function checkAtStart(env: Environment, options: StartChecksOptions): Promise<void> {
  const { registry } = env
  const { db, lifecycles, indexes } = env.options
  await requireThreads(env)
  await requireServerVersion(db)
  await requireRights(env)
  const collections = [...new Set(lifecycles.map(({ model }) => model.collection))]
  await requireSafeSharding(db, collections, NEVER_SHARDED)
  await provideIndexes(env, collections)
  await registry.requireNoOverlap()
  const changed = await registry.register()
  const [registered] = lifecycles
  if (registered) await requireServerSemantics(protocolCollection(db, LIFECYCLES_COLLECTION), registered.model.name)
  for (const lifecycle of lifecycles) await lifecycle.prepare?.(db, indexes)
  for (const model of changed) if (await retryBugs(env, options, model)) await registry.becomesNewest(model)
  await checkQueryPlans(env, options)
}

/** With another definition the program is another: what its bugs have parked gets another go, once for all replicas. @returns false: that has failed */
async function retryBugs(
  { logger, options, identity }: Environment,
  { terms }: StartChecksOptions,
  model: LifecycleModel,
): Promise<boolean> {
  const { name, collection } = model
  const documents = protocolCollection<Document>(options.db, collection)
  const why = { reason: 'unparked: its lifecycle was defined anew', by: identity }
  try {
    const count = await unparkBugs(documents, terms(model), workingPhases(model), why)
    const what = `${name}: what a bug of the program had parked is tried again (${count})`
    if (count > 0) logger.info(`${what}, because its definition is new`)
    return true
  } catch (error) {
    const command = `phaselock operations run unpark --lifecycle ${typed(name)} --bugs`
    logger.warn(
      `${name}: what a bug of the program had parked is still parked: ${String(error)}; to unpark it: ${command}`,
    )
    return false
  }
}

/** Loads the modules of handlers in threads: a missing module or function must not first show as a step's error. */
async function requireThreads({ options, threads }: Environment): Promise<void> {
  for (const { model, handlers } of options.lifecycles) {
    const found = await Promise.all(
      Object.entries(handlers).map(async ([phase, handler]) => {
        const declaration = threadOf(handler)
        const problem = declaration && (await threads.problem(declaration))
        return problem === undefined ? [] : [`phase '${phase}': ${problem}`]
      }),
    )
    if (found.flat().length > 0) throw new InvalidLifecycle(model.name, found.flat())
  }
}

/**
 * Checks the user's rights. Without the doorbell's, documents wait for the tick; without those on `phaselock.replicas`, people don't see this replica
 * there. Without any other, something would fail at each tick.
 */
async function requireRights({ logger, options }: Environment) {
  const { db, lifecycles, indexes, doorbell, beatEvery } = options
  const creates = indexes === 'create'
  const needed = lifecycles.flatMap(({ model, rights }): Rights[] => {
    // Removed documents with undelivered events are deleted by the replica that delivers them.
    const isFinal = ({ kind }: { readonly kind: string }) => kind === 'final'
    const removes = model.settings.callbacks !== undefined || [...model.phases.values()].some(isFinal)
    const actions = ['find', 'listIndexes', 'update', ...(creates ? ['createIndex'] : [])]
    const others = rights ?? [{ collection: model.collection, actions: removes ? ['remove'] : [] }]
    return [{ collection: model.collection, actions }, ...others]
  })
  const onLifecycles = ['find', 'insert', 'update', ...(creates ? [] : ['listIndexes'])]
  const isKeyed = lifecycles.some(({ model }) => model.settings.limitBy !== undefined)
  const isLimited = isKeyed || lifecycles.some(({ model }) => [...model.phases.values()].some(({ limits }) => limits))
  const limiting = ['find', 'insert', 'update', ...(isKeyed ? ['remove'] : [])]
  const onLimits = isLimited ? [{ collection: LIMITS_COLLECTION, actions: limiting }] : []
  const onDoorbell = ['find', 'insert', creates ? 'convertToCapped' : 'listIndexes']
  const [missing, deaf, unseen, idle, uncounted] = await missingRights(
    db,
    [...needed, { collection: LIFECYCLES_COLLECTION, actions: onLifecycles }, ...onLimits],
    doorbell === 'off' ? [] : [{ collection: DOORBELL_COLLECTION, actions: onDoorbell }],
    beatEvery === 0 ? [] : [{ collection: REPLICAS_COLLECTION, actions: ['find', 'insert', 'remove', 'update'] }],
    [
      { collection: DUTIES_COLLECTION, actions: ['find', 'insert', 'remove', 'update'] },
      { collection: CENSUS_COLLECTION, actions: ['find', 'insert', 'update'] },
    ],
    beatEvery === 0 ? [] : [{ collection: FLOWS_COLLECTION, actions: ['find', 'insert', 'remove', 'update'] }],
  )
  if (missing) throw missing
  if (deaf) logger.warn(`the doorbell lacks rights, so new documents may wait for the next tick: ${deaf.message}`)
  if (idle)
    logger.warn(`phaselock status and the metrics won't show all documents: the census lacks rights: ${idle.message}`)
  if (uncounted) logger.warn(`phaselock flow lacks what is older than minutes: ${uncounted.message}`)
  if (unseen) logger.warn(`phaselock replicas won't show all of this replica, which works as ever: ${unseen.message}`)
}

/**
 * Creates the indexes. With `check`, for users without DDL rights, it only reads if all that a replica would create is there.
 * @throws MissingIndexes with the commands to paste
 */
async function provideIndexes({ options, logger }: Environment, names: readonly string[]) {
  const { db, lifecycles, indexes } = options
  const needed = names.map((name) => {
    const models = lifecycles.map(({ model }) => model).filter(({ collection }) => collection === name)
    return [db.collection(name), models.flatMap(({ settings }) => moreIndexes(settings))] as const
  })
  if (indexes === 'create') {
    const build = { waiting: (said: string) => logger.info(said) }
    for (const [collection, more] of needed) await ensureLockIndexes(collection, build, more)
    return
  }
  const unusable = (await Promise.all(needed.map((one) => unusableLockIndexes(...one)))).flat()
  const missing = unusable.map(({ what, problem, command }) => ({ what: `${what}: ${problem}`, command }))
  if (!(await collectionExists(db.collection(LIFECYCLES_COLLECTION)))) {
    const command = `db.createCollection('${LIFECYCLES_COLLECTION}')`
    missing.push({ what: `collection ${LIFECYCLES_COLLECTION}: it is missing`, command })
  }
  if (missing.length > 0) throw new MissingIndexes(db.databaseName, missing)
}

async function checkQueryPlans(
  { options, serverClock, logger }: Environment,
  { looks, requests }: StartChecksOptions,
): Promise<void> {
  const { db, onBadPlan = 'warn' } = options
  const findings = await checkPlans({ db, looks, serverClock, requests: requests() }).catch((error) => {
    if (onBadPlan === 'refuse') throw error
    logger.warn(`the query plans could not be checked: ${String(error)}`)
    return []
  })
  for (const finding of findings) logger.error(`bad query plan: ${describeFinding(finding)}`, finding)
  if (onBadPlan === 'refuse' && findings.length > 0) throw new BadQueryPlan(findings)
}
