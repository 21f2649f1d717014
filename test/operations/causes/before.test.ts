import { describe, expect, test } from '@jest/globals'
import { type ChangeSources, changesBefore } from '../../../src/operations/causes/before.js'
import { type EndedOperation, helpedBefore } from '../../../src/operations/causes/helped.js'
import type { ReplicaState } from '../../../src/operations/inspect/replicas.js'

const NOW = new Date('2026-12-01T12:00:00Z')
const ago = (ms: number) => new Date(NOW.getTime() - ms)
const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

describe('what changed before a cause was first seen', () => {
  const row = { lifecycle: 'order', firstSeen: NOW, oldest: ago(DAY) }
  const none: ChangeSources = { audit: [], replicas: [], pauses: [], entries: [] }
  const entry = (at: Date, fields: object = {}) =>
    ({
      at,
      by: 'ana',
      action: 'limits set',
      target: 'limit gitlab',
      outcome: 'done',
      ...fields,
    }) as ChangeSources['audit'][number]
  const replica = (name: string, startedAt: Date, fields: object = {}): ReplicaState => ({
    ...{ name, startedAt, live: true, seenAt: NOW, version: '1.0.0', lifecycles: [{ name: 'order' }] },
    ...fields,
  })

  test.each<[string, Partial<ChangeSources>, object[]]>([
    ['nothing', {}, []],
    [
      'ten minutes before',
      { audit: [entry(ago(10 * MINUTE))] },
      [{ at: ago(10 * MINUTE), by: 'ana', what: 'limits set: limit gitlab' }],
    ],
    ['longer ago, and after', { audit: [entry(ago(10 * MINUTE + 1)), entry(ago(-1))] }, []],
    ['of another lifecycle', { audit: [entry(ago(1), { lifecycle: 'invoice' })] }, []],
    [
      'of its own lifecycle',
      { audit: [entry(ago(1), { lifecycle: 'order', action: 'pause', target: undefined })] },
      [{ what: 'pause' }],
    ],
    [
      'what was refused, what changed nothing, and acknowledgements',
      {
        audit: [
          entry(ago(1), { outcome: 'refused' }),
          entry(ago(1), { outcome: 'unchanged' }),
          entry(ago(1), { action: 'causes ack' }),
        ],
      },
      [],
    ],
    ['what may have been done', { audit: [entry(ago(1), { outcome: 'unknown' })] }, [{ by: 'ana' }]],
    [
      'a pause without an entry in the audit',
      { pauses: [{ lifecycle: 'order', what: 'lifecycle', by: 'bob', reason: null, since: ago(MINUTE), until: null }] },
      [{ by: 'bob', what: 'pause: order' }],
    ],
    [
      'a pause with an entry is said once',
      {
        audit: [entry(ago(MINUTE), { action: 'pause', target: 'order' })],
        pauses: [
          { lifecycle: 'order', what: 'lifecycle', by: 'ana', reason: null, since: ago(MINUTE - 400), until: null },
        ],
      },
      [{ what: 'pause: order' }],
    ],
    [
      'a lockTimeout',
      {
        entries: [
          { at: ago(MINUTE), lifecycle: 'order', what: 'lockTimeout changed from 1 to 2 ms' },
          { at: ago(MINUTE), lifecycle: 'invoice', what: 'x' },
        ],
      },
      [{ by: null, what: 'order: lockTimeout changed from 1 to 2 ms' }],
    ],
    [
      'a replica with another version',
      { replicas: [replica('one', ago(DAY)), replica('two', ago(MINUTE), { version: '1.1.0' })] },
      [{ by: null, what: 'two started with Phaselock 1.1.0; others run Phaselock 1.0.0' }],
    ],
    [
      'a replica with another version of the app',
      {
        replicas: [replica('one', ago(DAY), { appVersion: '4.1' }), replica('two', ago(MINUTE), { appVersion: '4.2' })],
      },
      [{ what: 'two started with 4.2; others run 4.1' }],
    ],
    [
      'a replica with another graph',
      {
        replicas: [
          replica('one', ago(DAY), { lifecycles: [{ name: 'order', graph: 'aa' }] }),
          replica('two', ago(MINUTE), { lifecycles: [{ name: 'order', graph: 'bb' }] }),
        ],
      },
      [{ what: 'two started with Phaselock 1.0.0, graph bb; others run Phaselock 1.0.0, graph aa' }],
    ],
    ['a replica with the same', { replicas: [replica('one', ago(DAY)), replica('two', ago(MINUTE))] }, []],
    [
      'a replica of other lifecycles',
      {
        replicas: [
          replica('one', ago(DAY)),
          replica('two', ago(MINUTE), { version: '1.1.0', lifecycles: [{ name: 'invoice' }] }),
        ],
      },
      [],
    ],
    [
      'the only replica',
      { replicas: [replica('one', ago(MINUTE))] },
      [{ what: 'one started with Phaselock 1.0.0; what ran before is unknown' }],
    ],
  ])('%s', (_name, sources, expected) => {
    expect(changesBefore(row, { ...none, ...sources })).toEqual(expected.map((one) => expect.objectContaining(one)))
  })

  test('at most five, the newest first', () => {
    const audit = Array.from({ length: 9 }, (_, i) => entry(ago(i * 1_000), { target: `limit ${i}` }))
    const all = changesBefore(row, { ...none, audit: audit.reverse() })
    expect(all.map(({ what }) => what)).toEqual([0, 1, 2, 3, 4].map((i) => `limits set: limit ${i}`))
  })

  test('without a first sight the oldest document counts; without that nothing does', () => {
    const sources = { ...none, audit: [entry(ago(DAY + MINUTE))] }
    expect(changesBefore({ ...row, firstSeen: null }, sources)).toHaveLength(1)
    expect(changesBefore({ ...row, firstSeen: null, oldest: null }, sources)).toEqual([])
  })
})

describe('what helped last time', () => {
  const row = { id: '3f9a0c1b22d4', cause: 'aaaaaaaaaaaa', lifecycle: 'order', firstSeen: ago(HOUR) }
  const operation = (endedAt: Date, fields: Partial<EndedOperation> = {}): EndedOperation => ({
    ...{ _id: 'wake-1', action: 'wake', lifecycle: 'order', by: 'ana', cause: row.id, ended: 'Done', done: 12 },
    ...{ begunAt: new Date(endedAt.getTime() - 1_000), endedAt },
    ...fields,
  })
  const fates = (operations: readonly EndedOperation[], of: object = {}) =>
    helpedBefore({ ...row, ...of }, operations, NOW).map(({ cause }) => cause)

  test('an operation for the row, or on its documents by their cause, and no other', () => {
    const operations = [
      operation(ago(DAY), { _id: 'row' }),
      operation(ago(DAY + 1), { _id: 'cause', cause: row.cause }),
      operation(ago(DAY), { _id: 'of another lifecycle', cause: row.cause, lifecycle: 'invoice' }),
      operation(ago(DAY), { _id: 'of another cause', cause: 'bbbbbbbbbbbb' }),
    ]
    expect(helpedBefore(row, operations, NOW)).toEqual([
      { operation: 'row', action: 'wake', by: 'ana', endedAt: ago(DAY), ended: 'Done', done: 12, cause: 'back' },
      expect.objectContaining({ operation: 'cause' }),
    ])
  })

  test('what became of the cause', () => {
    expect(fates([operation(ago(HOUR - 1))])).toEqual(['stayed'])
    expect(fates([operation(ago(25 * HOUR))])).toEqual(['back'])
    expect(fates([operation(ago(25 * HOUR + 1))])).toEqual(['gone'])
    expect(fates([operation(ago(2 * DAY))], { firstSeen: null })).toEqual(['unknown'])
    expect(fates([operation(ago(HOUR))], { firstSeen: null })).toEqual(['back'])
  })

  test('the next operation shows that it had come back', () => {
    const fourDaysAgo = 4 * DAY
    const later = operation(ago(3 * DAY + HOUR), { _id: 'later' })
    expect(fates([operation(ago(fourDaysAgo)), later])).toEqual(['gone', 'back'])
    expect(fates([operation(ago(5 * DAY)), later])).toEqual(['gone', 'gone'])
    expect(fates([operation(ago(2)), operation(ago(1))])).toEqual(['stayed', 'stayed'])
  })

  test('the newest three', () => {
    expect(fates(Array.from({ length: 9 }, (_, i) => operation(ago(2 * DAY + i))))).toHaveLength(3)
  })
})
