import { beforeEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import * as checked from '../../src/operations/checked.js'
import * as operations from '../../src/operations/index.js'
import { OperationError, type System, UsageError } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { BulkWorld, many, PARKED } from './bulk-world.js'

type Called = (...given: unknown[]) => Promise<unknown>

const own = (name: string) => JSON.parse(`{${JSON.stringify(name)}: {"phase": "Created"}}`) as Document
const cycle: Document = {}
cycle['self'] = cycle

/** What a person or a program may pass by mistake, or on purpose. */
const BAD: readonly unknown[] = [
  ...[null, undefined, 7, Number.NaN, Number.POSITIVE_INFINITY, -1, 9n, true, Symbol('s'), '', 'a\0b', '$where'],
  ...[
    'x'.repeat(17_000_000),
    '__proto__',
    'constructor',
    '{"$oid":',
    [],
    ['a'],
    {},
    cycle,
    () => 1,
    new Date(Number.NaN),
  ],
  ...[own('a\0b'), own('__proto__'), own('constructor'), own('$where'), { $gt: '' }],
  ...[Object.create(null), { toString: 1 }, new Map(), /a\0b/],
]

/** The same for a field of an argument. */
const IN_FIELDS = [
  null,
  7,
  Number.NaN,
  'a\0b',
  'x'.repeat(20_000),
  [],
  cycle,
  own('a\0b'),
  own('__proto__'),
  { toString: 1 },
]
/** Beyond the largest document. */
const HUGE: readonly unknown[] = ['x'.repeat(17_000_000), { big: 'x'.repeat(17_000_000) }]

describe('each function that acts on a system', () => {
  const database = useDatabase()
  let system: System
  beforeEach(async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany([...many(2, PARKED), { _id: 'a', phase: 'Created', lockedAt: null }] as never)
    system = w.system
  })

  const ref = { id: 'd00000', lifecycle: 'thing' }
  const operation = {
    ...{ action: 'wake', by: 'ana', reason: 'r', id: 'an-id', atMost: 10, rate: 1_000, concurrency: 8 },
    selection: {
      lifecycle: 'thing',
      filter: { n: 1 },
      phase: 'Creating',
      state: 'x',
      parked: true,
      on: 'x',
      all: false,
    },
    options: { state: 'Deleted', force: true, phase: 'Creating', step: 's', set: { n: 1 } },
  }
  const by = { by: 'ana', reason: 'r' }
  const listing = { lifecycle: 'thing', limit: 5, id: 'a', since: new Date(0), until: new Date() }
  const records = { list: async () => [], find: async () => undefined, release: async () => undefined }
  const clustered = { kubeconfig: '/nowhere', remove: false, olderThan: '10m', regions: ['r'], namespaces: ['n'] }
  /** What each takes besides the system; those that would ask a cluster get only bad arguments. */
  const TAKES: Readonly<Record<keyof typeof checked, readonly unknown[]>> = {
    previewBackfill: ['nightly', { from: new Date(0), to: new Date(), again: 'all', overlap: 'wait', ...by }],
    beginBackfill: ['nightly', { from: new Date(0), to: new Date(), again: 'all', overlap: 'wait', ...by }],
    listBackfills: [{ schedule: 'nightly', limit: 5 }],
    resumeBackfill: ['nightly'],
    abortBackfill: ['nightly', 'ana'],
    listUndelivered: ['thing', 5],
    retryCallbacks: [ref, { skip: true }],
    cancelStep: [ref, { ...by, waitMs: 0 }],
    setLockTimeout: ['thing', '30s'],
    listLocks: [true],
    heldLock: ['nightly'],
    releaseLock: [{ name: 'nightly' }],
    findOrphans: [clustered],
    addDocument: ['thing', { _id: 'b', n: 1 }, { force: true }],
    setState: [ref, 'Deleted', { force: false, seen: 'x' }],
    wakeDocument: [ref, { seen: 'x' }],
    unparkDocument: [ref, { by: 'ana', force: false, seen: 'x' }],
    removeDocument: [ref, { force: false, seen: 'x' }],
    listQuestions: [{ lifecycle: 'thing', to: 'ana' }],
    answerQuestion: [ref, { option: 'yes', question: 'q', ...by }],
    listRegions: [{ kubeconfig: '/nowhere' }],
    removeRegion: ['eu-1', { force: false, seen: 'x' }],
    listRegistrations: [],
    forgetLifecycle: ['thong'],
    listSchedules: [{ limit: 5, phase: 'Broken' }],
    setSchedule: ['nightly', { task: 't', cron: '0 6 * * *', args: { a: 1 } }, 'ana'],
    pauseSchedules: ['nightly', { ...by, until: new Date() }],
    listSchedulePauses: ['nightly'],
    resumeSchedules: ['nightly', 'ana', 'ben'],
    removeSchedule: ['nightly'],
    listRuns: ['nightly', { phase: 'Failed', limit: 5, timezone: 'UTC' }],
    startRun: ['nightly', { by: 'ana', args: { a: 1 } }],
    waitForRun: ['nightly', 0],
    previewOperation: [operation],
    beginOperation: [operation],
    listOperations: [{ id: 'x', limit: 5, open: true }],
    operationNamed: ['x'],
    abortOperation: ['x'],
    previewUndo: ['x'],
    undoOperation: ['x', by],
    workOnOperations: [[]],
    checkDatabase: [],
    causes: [{ fresh: true, takeMissing: true }],
    causeNamed: ['3f9a0c1b22d4'],
    ackCause: ['3f9a0c1b22d4', { by: 'ana', until: '4h', note: 'n' }],
    unackCause: ['3f9a0c1b22d4'],
    censusFor: [{ fresh: true, takeMissing: true }],
    countPhases: [{ fresh: true, takeMissing: true }],
    findDocument: [ref],
    showDocument: [ref],
    listDocuments: [{ lifecycle: 'thing', phase: 'Creating', state: 'x', parked: true, on: 'x', limit: 5 }],
    versionsMixed: [],
    readFlow: [{ lifecycle: 'thing', minutes: 5 }],
    listLimits: [{ keys: true }],
    listAudit: [{ ...listing, by: 'ana', action: 'wake' }],
    listEvents: [{ ...listing, replica: 'r', outcome: 'error' }],
    listReplicas: [{ name: 'r', deadAfter: '30s' }],
    listPauses: ['thing'],
    pauseWork: [
      { lifecycle: 'thing', phase: 'Creating', id: 'a', limit: 'l', key: 'k', ...by, for: '2h', until: new Date() },
    ],
    resumeWork: [{ lifecycle: 'thing', phase: 'Creating', id: 'a', limit: 'l', key: 'k', by: 'ana', of: 'ben' }],
    whyDocument: [{ id: 'a', lifecycle: 'thing' }],
    predict: [
      { action: 'set-state', ref: { id: 'a', lifecycle: 'thing' }, state: 'Deleted', seen: '0'.repeat(24), ...by },
    ],
    operationsOpen: [],
    systemStatus: [{ fresh: true, takeMissing: true }],
  }
  const ASKS_A_CLUSTER = ['findOrphans', 'listRegions', 'removeRegion']

  test('refuses what it can not use with one of three kinds', async () => {
    const wrong = new Set<string>()
    const acts = new Map<string, unknown>(Object.entries(operations))
    for (const [name, takes] of Object.entries(TAKES)) {
      const act = acts.get(name) as Called
      const ended = await Promise.allSettled(callsOf(name, takes).map((given) => act(...given)))
      for (const one of ended) {
        const error: unknown = one.status === 'rejected' ? one.reason : undefined
        if (error === undefined) continue
        if (!(error instanceof OperationError)) wrong.add(`${name}: ${(error as Error).stack}`.slice(0, 500))
        else if (error.message.length > 20_000) wrong.add(`${name}: a message of ${error.message.length} characters`)
      }
    }
    expect([...wrong]).toEqual([])
  }, 60_000)

  /** Calls with one bad value each: as an argument, and as a field of one. */
  function callsOf(name: string, takes: readonly unknown[]): unknown[][] {
    const first = /^(listLocks|heldLock|releaseLock)$/.test(name) ? records : name === 'readFlow' ? system.db : system
    const given = name === 'checkDatabase' ? [{ db: system.db, models: system.models }] : [first, ...takes]
    // A cluster is asked only once all arguments are right: with a system that is none, it never is.
    const places = ASKS_A_CLUSTER.includes(name) ? given.slice(0, 1) : given
    return places.flatMap((argument, i) => {
      const instead = (bad: unknown) => given.map((one, at) => (at === i ? bad : one))
      const paths = i === 0 ? [] : pathsOf(argument)
      const huge = i === 0 ? [] : HUGE.map(instead)
      return [
        ...BAD.map(instead),
        ...huge,
        ...paths.flatMap((path) => IN_FIELDS.map((bad) => instead(withAt(argument, path, bad)))),
      ]
    })
  }

  test('previewOperation and beginOperation check their request as Operations does', async () => {
    for (const more of [
      ...[{ action: null }, { action: '__proto__' }, { selection: null }, { selection: { lifecycle: null } }],
      ...[{ selection: { lifecycle: 'thing', filter: null } }, { selection: { lifecycle: 'thing', filter: [] } }],
      ...[{ options: null }, { by: null }],
    ]) {
      const request = { ...operation, ...more } as never
      await expect(operations.previewOperation(system, request)).rejects.toThrow(UsageError)
      await expect(operations.beginOperation(system, request)).rejects.toThrow(UsageError)
    }
  })
})

/** The paths of the fields of an object, those of its objects included. */
function pathsOf(value: unknown): string[][] {
  if (Object.prototype.toString.call(value) !== '[object Object]') return []
  return Object.entries(value as object).flatMap(([name, inner]) => [
    [name],
    ...pathsOf(inner).map((path) => [name, ...path]),
  ])
}

function withAt(value: unknown, [name, ...path]: string[], bad: unknown): unknown {
  return name === undefined ? bad : { ...(value as object), [name]: withAt((value as Document)[name], path, bad) }
}
