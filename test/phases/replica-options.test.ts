import { describe, expect, test } from '@jest/globals'
import { Replica, type ReplicaOptions } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { thingWith } from '../support/thing.js'

describe('new Replica', () => {
  const database = useDatabase()
  const lifecycles = [thingWith(async (_doc, step) => step.moveTo('Created'))]
  const made = (more: object) => () => new Replica({ db: database.db, lifecycles, ...more } as ReplicaOptions)

  test.each<[object, string]>([
    [{ threads: 0 }, 'threads: expected a whole number from 1, got 0'],
    [{ threads: 1.5 }, 'threads: expected a whole number from 1, got 1.5'],
    [{ threadMemoryMb: '64' }, "threadMemoryMb: expected a whole number from 16, got '64'"],
    [{ blockedAfterMs: -1 }, 'blockedAfterMs: expected milliseconds from 0, got -1'],
    [{ graceMs: Number.NaN }, 'graceMs: expected milliseconds from 0, got NaN'],
    [{ doorbell: 'on' }, "doorbell: expected one of auto, capped, changeStream, off, got 'on'"],
    [{ doorbellDb: 'shop' }, "doorbellDb: expected a database of the driver (client.db('shop')), got 'shop'"],
    [{ lifecycles: undefined }, 'lifecycles: expected a list of lifecycles with their handlers'],
    [{ grace: 100 }, 'grace: no such option; known: db, lifecycles, name,'],
    [{ toString: 1 }, 'toString: no such option'],
  ])('refuses %j', (more, problem) => {
    expect(made(more)).toThrow(expect.objectContaining({ name: 'InvalidReplicaOptions' }))
    expect(made(more)).toThrow(problem)
  })

  test('takes undefined for what is left out', () => {
    expect(made({ threads: undefined, doorbell: undefined })).not.toThrow()
  })
})
