import { describe, expect, test } from '@jest/globals'
import { Replica, type ReplicaOptions } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { thingOf, thingWith } from '../support/thing.js'

describe('new Replica', () => {
  const database = useDatabase()
  const lifecycles = [thingWith(async (_doc, step) => step.moveTo('Created'))]
  const made = (more: object) => () => new Replica({ db: database.db, lifecycles, ...more } as ReplicaOptions)

  test.each<[object, string]>([
    [{ threads: 0 }, 'threads: expected a whole number from 1 to 256, got 0'],
    [{ threads: 1.5 }, 'threads: expected a whole number from 1 to 256, got 1.5'],
    [{ threadMemoryMb: '64' }, "threadMemoryMb: expected a whole number from 16 to 65536, got '64'"],
    [
      { blockedAfter: '-1ms' },
      "blockedAfter: expected a duration from 0ms to 1m, such as '500ms' or '30s', got '-1ms'",
    ],
    [
      { grace: 100 },
      "grace: expected a duration from 0s to 1h, such as '500ms', '30s' or '5m', got 100; add the unit ('100s' is 1 min 40 s)",
    ],
    [{ grace: Number.NaN }, 'grace: expected a duration from 0s to 1h'],
    [{ tickEvery: '100ms' }, 'tickEvery: expected a duration from 1s to 10s'],
    [{ tickEvery: '11s' }, "tickEvery: expected a duration from 1s to 10s, such as '1s', got '11s'"],
    [{ doorbell: 'on' }, "doorbell: expected one of auto, capped, changeStream, off, got 'on'"],
    [{ doorbellDb: 'shop' }, "doorbellDb: expected a database from the driver (client.db('shop')), got 'shop'"],
    [{ lifecycles: [] }, 'lifecycles: expected at least one lifecycle with its handlers, got an empty list'],
    [{ lifecycles: undefined }, 'lifecycles: expected a list of lifecycles with their handlers'],
    [
      { lifecycles: [thingOf({})] },
      "lifecycles.0: expected a lifecycle with its handlers, got the definition of 'thing': call its handle({ ... })",
    ],
    [
      { lifecycles: [null] },
      'lifecycles.0: expected a lifecycle with its handlers (`lifecycle.handle({ ... })`), got null',
    ],
    [{ graceMs: 100 }, 'expected grace, got graceMs: it is called grace now'],
    [{ graze: '1s' }, "unknown option 'graze' (did you mean 'grace'?); known: db, lifecycles, name,"],
    [{ toString: 1 }, "unknown option 'toString'"],
  ])('refuses %j', (more, problem) => {
    expect(made(more)).toThrow(expect.objectContaining({ name: 'InvalidReplicaOptions' }))
    expect(made(more)).toThrow(problem)
  })

  test('refuses to be made of nothing', () => {
    expect(() => new Replica(undefined as never)).toThrow('expected an object, got undefined')
  })

  test('takes undefined for what is left out', () => {
    expect(made({ threads: undefined, doorbell: undefined })).not.toThrow()
  })
})
