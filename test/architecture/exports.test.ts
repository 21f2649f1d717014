import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { expect, test } from '@jest/globals'
import * as core from '../../src/index.js'

test('the package has these entries', async () => {
  const { exports } = JSON.parse(await readFile(resolve(import.meta.dirname, '../../package.json'), 'utf8'))
  expect(Object.keys(exports).sort()).toEqual([
    '.',
    './database',
    './kubernetes',
    './locks',
    './locks/nest',
    './nest',
    './operations',
    './package.json',
    './schedules',
    './schedules/nest',
    './tasks',
    './telemetry',
    './testing',
    './testing/nest',
  ])
})

test('a compiler that knows no `exports` (module: commonjs) finds the types of each entry too', async () => {
  const { exports, typesVersions } = JSON.parse(
    await readFile(resolve(import.meta.dirname, '../../package.json'), 'utf8'),
  )
  const inner = Object.entries<{ types?: string }>(exports).filter(([name, { types }]) => name !== '.' && types)
  expect(typesVersions['*']).toEqual(Object.fromEntries(inner.map(([name, { types }]) => [name.slice(2), [types]])))
})

test('the main entry has what an app defines, runs and owns its documents with, and none of the engine', () => {
  expect(Object.keys(core).sort()).toEqual([
    'Audit',
    'BadQueryPlan',
    'BoundLifecycle',
    'CallbackTimeout',
    'ChildExists',
    'DocumentExists',
    'EndlessSteps',
    'Events',
    'InvalidDocument',
    'InvalidLifecycle',
    'InvalidOptions',
    'InvalidOutcome',
    'InvalidReplicaOptions',
    'InvalidThread',
    'LeaseLost',
    'Limits',
    'MissingIndexes',
    'MissingPackage',
    'NotAttached',
    'OverlappingLifecycles',
    'OwnerClient',
    'Replica',
    'StepAborted',
    'StepTimeout',
    'TASK_LOCK_INIT_TIME',
    'ThreadDied',
    'Unavailable',
    'UnknownChild',
    'UnknownState',
    'UnsupportedNode',
    'flowOf',
    'keepHeapLean',
    'lifecycleOf',
    'silentLogger',
    'thread',
  ])
})

test.each([
  [
    'kubernetes',
    'ANNOTATIONS AdmissionDenied BeingDeleted Cluster HeldCluster InvalidRegion InvalidResource InvalidWatchOptions KubernetesConflict KubernetesError KubernetesForbidden LABELS NamespaceMissing NamespaceTerminating NotOwned Orphans Owner PodUnknown QuotaExceeded REGION_COLLECTION RegionUnavailable Regions StaleFence UnknownKind earlyRecovery fenceOf nameOf onCluster podLog readinessOf regionWorks removalOf singleRegion watchObjects',
  ],
  [
    'locks',
    'ActiveLock InvalidLockConfig InvalidLockDuration InvalidLockProvider LockAssert LockExecutor LockExtender LockLost LockProviderUnavailable NotLocked StaleLockHandle checkedExecution holderIdentity memoryLocks mongoLockProvider observeLocks openLockProvider',
  ],
  [
    'schedules',
    'Cron InvalidBackfill InvalidCron InvalidSchedule InvalidSchedulesOptions InvalidTask NoSuchSchedule PausedByOthers ReplicasLost RunLockLost RunTimeout Schedules UnknownTimeZone starts',
  ],
  [
    'tasks',
    'COLLECTIONS Doorbell Holder InvalidDuration InvalidHostName NoLongerHeld apiGatewayDefinitions apiGatewayLifecycles bindLifecycle checkBindOptions databaseNameFor default distinctName doDuty durationMs idText isDuplicateKey objectNameFor protocolCollection runtimeDomainDefinition runtimeDomainLifecycles',
  ],
])('the entry %s, whose index passes on whole files, has these names', async (entry, names) => {
  const found = await import(`../../src/${entry}/index.js`)
  expect(Object.keys(found).sort().join(' ')).toBe(names)
})
