import { describe, expect, test } from '@jest/globals'
import type { Duty } from '../../../src/lock/index.js'
import type { OperationState } from '../../../src/operations/bulk/operations.js'
import { documentRows, repeats, trendOf } from '../../../src/operations/causes/document-rows.js'
import { type CauseRow, causeId, type FoundCause, inOrder } from '../../../src/operations/causes/row.js'
import { scheduleRows } from '../../../src/operations/causes/schedule-rows.js'
import { type SystemSeen, systemRows } from '../../../src/operations/causes/system-rows.js'
import { versionRows } from '../../../src/operations/causes/version-rows.js'
import type { ReplicaState } from '../../../src/operations/inspect/replicas.js'
import type { Census, TroubleGroup } from '../../../src/phases/index.js'
import { censusOf, groupOf } from './census.js'

const NOW = new Date('2026-12-01T12:00:00Z')
const ago = (ms: number) => new Date(NOW.getTime() - ms)
const MINUTE = 60_000
const HOUR = 60 * MINUTE

const rowsOf = (fields: Partial<Census>, more: Partial<Parameters<typeof documentRows>[0]> = {}) =>
  documentRows({ census: censusOf('order', NOW, fields), flow: undefined, pauses: [], now: NOW, ...more })

const phase = (name: string, kind: 'working' | 'unknown' | 'removed', n: number): Census['phases'][number] => ({
  ...{ phase: name, kind, paused: false, documents: { n }, due: { n: 0 }, held: 0, sleeping: { n: 0 } },
  ...{ asking: { n: 0 }, parked: { n: 0 }, failing: { n: 0 }, waiting: { n: 0 }, oldestDueAt: null, undated: 0 },
})
const pause = { lifecycle: 'order', what: 'lifecycle', by: 'ana', reason: null, since: ago(HOUR), until: null } as const
const overdue = (why: Census['overdue'][number]['why'], limit?: string): Partial<Census> => ({
  overdue: [
    {
      phase: 'Packing',
      documents: { n: 3 },
      why,
      oldest: ago(HOUR),
      ids: ['a'],
      ...(limit !== undefined && { limit }),
    },
  ],
})

describe('rows of documents', () => {
  test.each<[string, Partial<Census>, object | undefined]>([
    ['nothing', {}, undefined],
    [
      'an error that repeats',
      {
        errors: [groupOf({ documents: { n: 3 }, ids: [1, 2, 3, 4], text: 'no paper', phases: ['Packing', 'Sending'] })],
      },
      {
        kind: 'error',
        text: 'failing in Packing, Sending: no paper',
        documents: { n: 3 },
        ids: [1, 2, 3],
        phase: undefined,
      },
    ],
    ['a first try that failed', { errors: [groupOf({ documents: { n: 1 } })] }, undefined],
    [
      'a park reason',
      { parks: [groupOf({ documents: { n: 1 }, text: 'no paper' })] },
      { kind: 'park', phase: 'Packing', text: 'parked in Packing: no paper' },
    ],
    [
      'an unknown phase',
      { phases: [phase('Pakcing', 'unknown', 500)] },
      { kind: 'unknown-phase', documents: { n: 500 }, text: "whose phase the lifecycle doesn't have: Pakcing" },
    ],
    [
      'a working phase, and removed documents',
      { phases: [phase('Packing', 'working', 500), phase('(removed)', 'removed', 5)] },
      undefined,
    ],
    [
      'a broken shape',
      { broken: [{ field: 'lockedAt', found: 'a string', documents: { n: 2 }, ids: ['a'] }] },
      { kind: 'broken', text: "whose lockedAt can't be used: it is a string" },
    ],
    [
      'documents without a phase, which two lists name',
      {
        phases: [phase('(missing)', 'unknown', 2)],
        broken: [{ field: 'phase', found: 'missing', documents: { n: 2 }, ids: ['a'] }],
      },
      { kind: 'unknown-phase', documents: { n: 2 }, ids: ['a'] },
    ],
    [
      'due, paused',
      overdue('paused'),
      { kind: 'overdue', term: 'pause', text: 'due in Packing for over a minute: paused: order by ana' },
    ],
    [
      'due, without a slot',
      overdue('limit', 'gitlab'),
      { kind: 'overdue', term: 'limit', text: 'due in Packing for over a minute: they wait for a slot of gitlab' },
    ],
    [
      'due, busy',
      overdue('busy'),
      { kind: 'overdue', term: undefined, text: expect.stringContaining('replicas are busy') },
    ],
    [
      'due, unhandled',
      overdue('unhandled'),
      { kind: 'overdue', term: 'replica', text: expect.stringContaining('no live replica handles it') },
    ],
    [
      'a loop',
      { loops: [{ phase: 'Packing', documents: { n: 1 }, ids: ['a'] }] },
      { kind: 'loop', text: 'taking step after step in Packing without progress' },
    ],
    [
      'callbacks given up',
      { callbacks: { givenUp: { n: 1 }, ids: ['a'] } },
      { kind: 'callbacks', text: 'with callbacks that were given up' },
    ],
    [
      'a question near its deadline',
      { questions: { documents: { n: 4 }, nearestDeadline: ago(-HOUR + 1), ids: ['a'] } },
      { kind: 'question', text: expect.stringContaining('the nearest deadline is 2026-12-01T12:59') },
    ],
    [
      'a question past its deadline',
      { questions: { documents: { n: 4 }, nearestDeadline: ago(HOUR), ids: ['a'] } },
      { kind: 'question', text: expect.stringContaining('the nearest deadline was 2026-12-01T11') },
    ],
    [
      'a question with time left',
      { questions: { documents: { n: 4 }, nearestDeadline: ago(-2 * HOUR), ids: ['a'] } },
      undefined,
    ],
    [
      'a question without a deadline',
      { questions: { documents: { n: 4 }, nearestDeadline: null, ids: ['a'] } },
      undefined,
    ],
  ])('%s', (_name, fields, expected) => {
    const rows = rowsOf(fields, { pauses: [pause] })
    if (!expected) return expect(rows).toEqual([])
    expect(rows).toEqual([expect.objectContaining({ lifecycle: 'order', ...expected })])
    const { command, preview } = rows[0]!.action!('3f9a0c1b22d4')
    expect([command, preview]).toEqual([expect.stringMatching(/^phaselock /), expect.stringMatching(/^phaselock /)])
  })

  test('an error repeats with three documents, with three records, or if it was recorded again a minute later', () => {
    const one: TroubleGroup = groupOf({ documents: { n: 1 }, firstSeen: ago(HOUR), newest: ago(HOUR) })
    expect(repeats(one, undefined)).toBe(false)
    expect(repeats(one, { n: 2, byMinute: [2], versions: [] })).toBe(false)
    expect(repeats(one, { n: 3, byMinute: [3], versions: [] })).toBe(true)
    expect(repeats({ ...one, documents: { n: 2 } }, undefined)).toBe(false)
    expect(repeats({ ...one, documents: { n: 3 } }, undefined)).toBe(true)
    expect(repeats({ ...one, newest: ago(HOUR - MINUTE + 1) }, undefined)).toBe(false)
    expect(repeats({ ...one, newest: ago(HOUR - MINUTE) }, undefined)).toBe(true)
  })

  test('a trend compares the last quarter of an hour with the one before it', () => {
    const of = (early: number, late: number) =>
      trendOf({ byMinute: [99, early, ...Array(14).fill(0), late, ...Array(14).fill(0)] })
    expect([of(0, 2), of(0, 3), of(10, 14), of(10, 15), of(15, 10), of(14, 10)]).toEqual([
      'steady',
      'rising',
      'steady',
      'rising',
      'falling',
      'steady',
    ])
    expect(trendOf(undefined)).toBe('unknown')
  })

  test('the versions and the trend of an error come from the flow', () => {
    const [row] = rowsOf(
      { errors: [groupOf({ cause: 'aaaaaaaaaaaa', documents: { n: 1 } })] },
      { flow: new Map([['aaaaaaaaaaaa', { n: 9, byMinute: [9], versions: ['1.4.2'] }]]) },
    )
    expect(row).toMatchObject({ versions: ['1.4.2'], trend: 'rising' })
  })

  test('an action names the cause, and the row that it is for', () => {
    const [row] = rowsOf({ parks: [groupOf({ cause: 'aaaaaaaaaaaa' })] })
    expect(row!.action!('3f9a0c1b22d4')).toEqual({
      command: 'phaselock operations run unpark --lifecycle order --cause aaaaaaaaaaaa --for 3f9a0c1b22d4',
      preview: 'phaselock operations run unpark --lifecycle order --cause aaaaaaaaaaaa --for 3f9a0c1b22d4 --dry-run',
    })
  })
})

describe('rows of replicas and of Phaselock itself', () => {
  const live: ReplicaState = { name: 'one~1', live: true, seenAt: NOW, lifecycles: [{ name: 'order' }] }
  const held = { name: 'order', held: 4, places: 8, free: 4, phases: ['Packing'] }
  const dead: ReplicaState = { name: 'two~1', live: false, seenAt: ago(20_000), lifecycles: [held], version: '1.2.0' }
  const seen: SystemSeen = {
    now: NOW,
    lifecycles: ['order'],
    replicas: [live],
    leaseMs: new Map([['order', 30_000]]),
    duties: [],
    operations: [],
  }
  const duty: Duty = {
    name: 'census of order',
    everyMs: 5_000,
    by: 'one~1',
    begunAt: NOW,
    tookMs: 4,
    error: null,
    found: {},
    foundAt: NOW,
  }
  const operation = {
    _id: 'wake-1',
    condition: 'Waiting',
    createdAt: ago(HOUR),
    expected: 10,
    counts: { seen: 4 },
  } as OperationState

  test.each<[string, Partial<typeof seen>, object | undefined]>([
    ['all is well', {}, undefined],
    ['no replica', { replicas: [] }, { kind: 'no-replica', oldest: null }],
    ['no live replica', { replicas: [{ ...live, live: false }] }, { kind: 'no-replica', oldest: NOW }],
    [
      'a lifecycle without a replica',
      { lifecycles: ['order', 'invoice'] },
      { kind: 'no-replica-of', lifecycle: 'invoice' },
    ],
    [
      'a dead replica with leases',
      { replicas: [live, dead] },
      { kind: 'dead-replica', documents: { n: 4, about: true }, versions: ['1.2.0'] },
    ],
    ['a dead replica whose leases are over', { replicas: [live, { ...dead, seenAt: ago(30_000) }] }, undefined],
    [
      'a dead replica that held nothing',
      { replicas: [live, { ...dead, lifecycles: [{ ...held, held: 0 }] }] },
      undefined,
    ],
    [
      'an older one, which says nothing of what it holds',
      { replicas: [live, { ...dead, lifecycles: [{ name: 'order' }] }] },
      undefined,
    ],
    [
      'an operation that nobody works on',
      { operations: [operation] },
      {
        kind: 'operation',
        documents: { n: 6, about: true },
        text: 'left of operation wake-1, which is unfinished, and nobody works on it',
      },
    ],
    [
      'a parked operation',
      { operations: [{ ...operation, condition: 'Parked', problem: 'no disk' }] },
      { kind: 'operation', text: 'left of operation wake-1, which is parked: no disk' },
    ],
    ['an operation under way', { operations: [{ ...operation, condition: 'Running' }] }, undefined],
    ['a duty in time', { duties: [{ ...duty, begunAt: ago(15 * MINUTE) }] }, undefined],
    [
      'a late duty',
      { duties: [{ ...duty, begunAt: ago(15 * MINUTE + 1) }] },
      { kind: 'duty', text: expect.stringContaining('was begun 15 min ago, and is due each 5 min') },
    ],
    [
      'a duty that failed',
      { duties: [{ ...duty, error: 'no disk' }] },
      { kind: 'duty', text: "the duty 'census of order' failed: no disk" },
    ],
    [
      'a duty that hangs',
      { duties: [{ ...duty, begunAt: ago(6 * MINUTE), tookMs: null }] },
      { kind: 'duty', text: expect.stringContaining('has not ended since 6 min') },
    ],
    [
      'the duty of a lifecycle that no replica runs',
      { lifecycles: ['order'], duties: [{ ...duty, name: 'census of invoice', error: 'no disk' }] },
      undefined,
    ],
    [
      'the sweep of an older version',
      { duties: [duty, { ...duty, name: 'sweep of order', begunAt: ago(HOUR) }] },
      undefined,
    ],
  ])('%s', (_name, fields, expected) => {
    const rows = systemRows({ ...seen, ...fields })
    expect(rows).toEqual(expected ? [expect.objectContaining(expected)] : [])
  })
})

describe('rows of schedules', () => {
  const failed = { at: ago(HOUR), run: 'sync@1', error: { name: 'Error', message: 'no disk\nat x' } }
  test.each<[string, object, object | undefined]>([
    ['as planned', { phase: 'Active', nextRunAt: ago(-HOUR) }, undefined],
    [
      'broken',
      { phase: 'Broken', broken: 'cron: expected five fields' },
      { text: "schedule sync can't run: cron: expected five fields" },
    ],
    [
      'failed last',
      { phase: 'Active', lastFailure: failed, lastSuccess: { at: ago(2 * HOUR) } },
      { text: 'schedule sync failed: Error: no disk', oldest: ago(HOUR), ids: ['sync'] },
    ],
    [
      'failed, and succeeded since',
      { phase: 'Active', lastFailure: failed, lastSuccess: { at: ago(MINUTE) } },
      undefined,
    ],
    [
      'late',
      { phase: 'Active', nextRunAt: ago(3 * MINUTE) },
      { text: 'schedule sync was due at 2026-12-01T11:57:00.000Z, and no replica has begun it' },
    ],
    ['due a moment ago', { phase: 'Active', nextRunAt: ago(MINUTE) }, undefined],
    ['paused', { phase: 'Paused', nextRunAt: ago(HOUR) }, undefined],
    ['damaged', { phase: 7, nextRunAt: 'soon', lastFailure: 'yes' }, undefined],
  ])('%s', (_name, fields, expected) => {
    const rows = scheduleRows([{ _id: 'sync', ...fields }], NOW)
    expect(rows).toEqual(expected ? [expect.objectContaining({ kind: 'schedule', ...expected })] : [])
  })
})

test('another fault of the same duty, schedule, lifecycle or question has another id, and the same one keeps its id', () => {
  const ids = (rows: readonly FoundCause[]) => rows.map(causeId).join()
  const replicas = [{ name: 'one~1', live: true, seenAt: NOW, lifecycles: [{ name: 'order' }] }] as never
  const idle = { now: NOW, lifecycles: ['order'], replicas, leaseMs: new Map<string, number>(), operations: [] }
  const failedDuty = { name: 'events', everyMs: 300_000, begunAt: ago(MINUTE), tookMs: 1, by: 'one~1', foundAt: NOW }
  const ofDuty = (error: string) =>
    ids(systemRows({ ...idle, duties: [{ ...failedDuty, found: null, error } as never] }))
  const ofSchedule = (message: string) =>
    ids(
      scheduleRows(
        [{ _id: 'sync', phase: 'Active', lastFailure: { at: NOW, error: { name: 'Error', message } } }],
        NOW,
      ),
    )
  const ofVersions = (graph: string) => {
    const graphs = ['aaa', graph].map((one) => ({
      graph: one,
      replicas: [],
      versions: [],
      since: null,
      differences: [],
    }))
    return ids(versionRows([{ lifecycle: 'order', graphs, onlySome: [] }], new Map(), NOW))
  }
  const ofQuestion = (minutes: string) =>
    ids(rowsOf({ questions: { documents: { n: 1 }, nearestDeadline: ago(-Number(minutes) * MINUTE), ids: ['a'] } }))
  for (const [of, one, same, other] of [
    [ofDuty, 'no disk 1', 'no disk 2', 'no right'],
    [ofSchedule, 'no disk 1', 'no disk 2', 'no right'],
    [ofVersions, 'bbb', 'bbb', 'ccc'],
    [ofQuestion, '5', '5', '6'],
  ] as const) {
    expect(of(one)).toMatch(/^[a-f\d]{12}$/)
    expect(of(same)).toBe(of(one))
    expect(of(other)).not.toBe(of(one))
  }
})

test('an id depends on what distinguishes a cause alone, and no two of these share one', () => {
  const of = (kind: 'error' | 'park', lifecycle: string, ...key: string[]) => causeId({ kind, lifecycle, key })
  expect(of('error', 'order', 'a')).toBe(of('error', 'order', 'a'))
  const all = [
    of('error', 'order', 'a'),
    of('park', 'order', 'a'),
    of('error', 'invoice', 'a'),
    of('error', 'order', 'a', 'b'),
  ]
  expect(new Set(all).size).toBe(4)
  for (const id of all) expect(id).toMatch(/^[a-f\d]{12}$/)
})

test('the order: acknowledged ones last, then by kind, then the oldest first, equal ones by id', () => {
  const ack = { by: 'ana', note: null, since: NOW, until: NOW, doubled: false }
  const row = (id: string, kind: CauseRow['kind'], oldest: Date | null, more: Partial<CauseRow> = {}) =>
    ({ id, kind, oldest, firstSeen: null, ...more }) as CauseRow
  const rows = [
    row('acknowledged', 'no-replica', null, { ack }),
    row('doubled', 'park', ago(2), { ack: { ...ack, doubled: true } }),
    row('duty', 'duty', ago(HOUR)),
    row('newer', 'park', ago(1)),
    row('older', 'park', ago(HOUR)),
    row('b-undated', 'park', null),
    row('a-undated', 'park', null),
  ]
  const order = ['a-undated', 'b-undated', 'older', 'doubled', 'newer', 'duty', 'acknowledged']
  expect([...rows].sort(inOrder).map(({ id }) => id)).toEqual(order)
  expect(
    [...rows]
      .reverse()
      .sort(inOrder)
      .map(({ id }) => id),
  ).toEqual(order)
})
