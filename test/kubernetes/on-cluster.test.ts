import { describe, expect, test } from '@jest/globals'
import {
  InvalidResource,
  KubernetesConflict,
  KubernetesForbidden,
  NamespaceTerminating,
  onCluster,
  QuotaExceeded,
  UnknownKind,
} from '../../src/kubernetes/index.js'
import { Unavailable } from '../../src/phases/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, type Thing, thing, things } from '../support/thing.js'

const request = { cluster: 'eu-1', verb: 'patch', resource: 'pods', namespace: 'a' }

describe('what a cluster says becomes an outcome', () => {
  const database = useDatabase()

  test.each([
    [new QuotaExceeded('exceeded quota: few', request), { parked: /^exceeded quota: few$/ }],
    [new InvalidResource('spec: required', request), { parked: /^spec: required$/ }],
    [new KubernetesConflict('changed five times', request), { waits: /^changed five times$/ }],
    [new NamespaceTerminating('is being terminated', request), { waits: /^is being terminated$/ }],
    [new UnknownKind('no Certificate', request), { waits: /^no Certificate$/ }],
    [new Unavailable('does not answer'), { waits: /^does not answer$/ }],
    [new KubernetesForbidden('lacks a right', request), { waits: /^lacks a right$/ }],
    [new Error('unforeseen'), { error: /^unforeseen$/ }],
  ] as [Error, { parked?: RegExp; waits?: RegExp; error?: RegExp }][])('%s', async (error, expected) => {
    const failing = onCluster<never, Thing, undefined>(
      () => undefined,
      async () => {
        throw error
      },
    )
    const replica = replicaOf(database.db, thing.handle({ Creating: failing, Deleting: failing }))
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', lockedAt: new Date(0) })
    await replica.tick()
    await replica.idle()
    const { lockedAt, progress } = (await things(database.db).findOne({ _id: 'a' }))!
    const isParked = lockedAt.getFullYear() === 9999
    expect(isParked).toBe(expected.parked !== undefined)
    if (expected.parked) expect(progress.history.at(-1).reason).toMatch(expected.parked)
    if (expected.waits)
      expect(progress).toMatchObject({ attempts: 0, waitingFor: expect.stringMatching(expected.waits) })
    if (expected.error)
      expect(progress).toMatchObject({ attempts: 1, error: { message: expect.stringMatching(expected.error) } })
    await replica.stop()
  })
})
