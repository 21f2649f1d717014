import type { Db } from 'mongodb'
import { requireServerVersion } from '../../../database/index.js'
import {
  BadQueryPlan,
  checkPlans,
  collectionExists,
  describeFinding,
  ensureLockIndexes,
  LIFECYCLES_COLLECTION,
  type LookRequest,
  type Looks,
  unusableLockIndexes,
} from '../../../lock/index.js'
import { InvalidLifecycle, MissingIndexes } from '../../errors.js'
import type { Logger } from '../../logger.js'
import { type ThreadDeclaration, type ThreadPool, threadOf } from '../../threads/index.js'
import type { ReplicaSettings } from '../check-options.js'
import type { Environment } from '../environment.js'
import type { LifecycleRegistry } from '../registry/lifecycle-registry.js'

export interface StartChecksOptions {
  readonly replica: ReplicaSettings
  readonly registry: LifecycleRegistry
  readonly looks: Looks
  readonly threads: ThreadPool
  readonly requests: () => readonly LookRequest[]
}

/**
 * What a start does before it works: checks the server, creates the indexes (or looks for them), registers the lifecycles.
 * @throws ServerTooOld, MissingIndexes, OverlappingLifecycles, BadQueryPlan, InvalidLifecycle for a thread's module
 */
export async function checkAtStart(env: Environment, options: StartChecksOptions): Promise<void> {
  const { registry } = options
  const { db, lifecycles, indexes } = options.replica
  await requireThreads(options)
  await requireServerVersion(db)
  const collections = [...new Set(lifecycles.map(({ model }) => model.collection))]
  await provideIndexes(db, collections, indexes, env.logger)
  await registry.requireNoOverlap()
  await registry.register()
  for (const lifecycle of lifecycles) await lifecycle.prepare?.(db, indexes)
  await checkQueryPlans(env, options)
}

/** Loads the modules of handlers in threads: a missing module or function must not first show as a step's error. */
async function requireThreads({ replica, threads }: StartChecksOptions): Promise<void> {
  for (const { model, handlers } of replica.lifecycles) {
    const declared = Object.keys(handlers).flatMap((phase): [string, ThreadDeclaration][] => {
      const declaration = threadOf(handlers[phase])
      return declaration ? [[phase, declaration]] : []
    })
    const found = await Promise.all(
      declared.map(async ([phase, declaration]) => {
        const problem = await threads.problem(declaration)
        return problem === undefined ? [] : [`phase '${phase}': ${problem}`]
      }),
    )
    if (found.flat().length > 0) throw new InvalidLifecycle(model.name, found.flat())
  }
}

async function provideIndexes(
  db: Db,
  collections: readonly string[],
  how: 'create' | 'check',
  logger: Logger,
): Promise<void> {
  if (how === 'check') await requireIndexes(db, collections)
  else
    for (const name of collections) {
      await ensureLockIndexes(db.collection(name), { waiting: (said) => logger.info(said) })
    }
}

async function checkQueryPlans(
  { serverClock, logger }: Environment,
  { replica, looks, requests }: StartChecksOptions,
): Promise<void> {
  const { db, onBadPlan = 'warn' } = replica
  const findings = await checkPlans({ db, looks, serverClock, requests: requests() }).catch((error) => {
    if (onBadPlan === 'refuse') throw error
    logger.warn(`the query plans could not be checked: ${String(error)}`)
    return []
  })
  for (const finding of findings) logger.error(`bad query plan: ${describeFinding(finding)}`, finding)
  if (onBadPlan === 'refuse' && findings.length > 0) throw new BadQueryPlan(findings)
}

/**
 * For users without DDL rights: reads whether all that a replica would create is there. Nothing is created.
 * @throws MissingIndexes with the commands to paste
 */
async function requireIndexes(db: Db, collections: readonly string[]): Promise<void> {
  const missing = await Promise.all([
    ...collections.map(async (name) =>
      (await unusableLockIndexes(db.collection(name))).map(({ what, problem, command }) => ({
        what: `${what}: ${problem}`,
        command,
      })),
    ),
    missingCollection(db, LIFECYCLES_COLLECTION),
  ])
  if (missing.flat().length > 0) throw new MissingIndexes(db.databaseName, missing.flat())
}

async function missingCollection(db: Db, name: string) {
  if (await collectionExists(db.collection(name))) return []
  return [{ what: `collection ${name}: it is missing`, command: `db.createCollection('${name}')` }]
}
