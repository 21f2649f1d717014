import { describe, expect, jest, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { lifecycleOf } from '../../src/index.js'
import { askForSlots, LIMITS_COLLECTION } from '../../src/lock/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { replicaOf, type Thing, things } from '../support/thing.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('the commands on limits', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const limitDocuments = () => database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })

  test('set, list, remove; show says what a document waits for', async () => {
    const lifecycle = lifecycleOf<Thing>().define({
      name: 'thing',
      collection: 'Thing',
      phases: { Creating: { next: ['Created'], limits: ['api'], slots: 2 }, Created: { rest: true } },
      maxActive: 7,
    })
    const bound = lifecycle.handle({ Creating: async (_doc, step) => step.moveTo('Created') })
    expect(await run('limits')).toMatchObject({
      code: 0,
      out: 'no limits; to set one: phaselock limits set <name> --slots 5\n',
    })
    const replica = replicaOf(database.db, bound)
    await replica.prepare()
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    expect((await run('show', 'a')).out).toContain(
      'Due, but there is no limit api, so nothing that needs it begins (phaselock limits set api --slots 2).',
    )
    const unset = await run('limits')
    expect(unset.out).toMatch(/^api +not set +0 +- +-$/m)
    expect(unset.out).toContain(
      "!! api isn't set, so what needs it waits (thing): phaselock limits set api --slots 2\n",
    )
    expect((await run('limits', '--json')).json()).toMatchObject([
      { name: 'api', slots: 0, neededBy: ['thing'], needs: 2, stored: false },
      { name: 'thing (maxActive)', slots: 7, neededBy: ['thing'], needs: 1, stored: true },
    ])
    expect((await run('check')).out).toContain("it isn't in phaselock.limits, so documents of thing that need it wait")
    expect(await run('limits', 'set', 'api', '--slots', '3', '--rate', '100/1m')).toMatchObject({
      code: 0,
      out: 'limit api: 3 slots, 100 in 1 min\n',
    })
    await askForSlots(database.db, 'api', { by: 'r1~1', inUse: 2, slots: 0, starts: 0, leaseMs: 600_000, turn: 1 })
    const list = await run('limits')
    expect(list.out).toMatch(/^LIMIT +SLOTS +TAKEN +RATE +BY$/m)
    expect(list.out).toMatch(/^api +3 +2 +100 in 1 min +r1~1 \(2\)$/m)
    expect(list.out).toMatch(/^thing \(maxActive\) +7 +0 +- +-$/m)
    expect((await run('limits', '--json')).json()).toMatchObject([
      { name: 'api', slots: 3, rate: { starts: 100, perMs: 60_000 }, holders: [{ by: 'r1~1', slots: 2 }] },
      { name: 'thing (maxActive)', slots: 7, rate: null, holders: [] },
    ])
    expect((await run('show', 'a')).out).toContain(
      ', but it waits for a slot of its limit api: 2 of 3 are taken: r1~1 has 2; its limit api lets 100 in 1 min begin.',
    )
    expect((await run('show', 'a', '--json')).json()).toMatchObject({ limits: [{ name: 'api', needs: 2 }, {}] })
    expect((await run('limits', 'set', 'api', '--slots', '4', '--rate', 'any')).out).toBe('limit api: 4 slots\n')
    await replica.runOnce()
    expect(await bound.find('a')).toMatchObject({ phase: 'Created' })
    expect((await run('limits', 'set', 'thing (maxActive)', '--slots', 'declared')).out).toBe(
      'limit thing (maxActive): 7 slots\n',
    )
    expect((await run('limits', 'remove', 'api')).out).toBe('limit api: removed\n')
    // A live replica's next request would declare it again, with all slots taken for half a lease.
    await replica.stop()
    await limitDocuments().deleteMany({})
    await things(database.db).insertOne({ _id: 'b', phase: 'Creating' })
    expect((await run('limits')).out).toMatch(/^thing \(maxActive\) +7 +0 +- +-$/m)
    expect((await run('show', 'b')).out).not.toContain('maxActive')
    const declared = "limit thing (maxActive): it isn't in phaselock.limits, though lifecycles declare 7 slots"
    expect((await run('check')).out).toContain(declared)
    await run('check', '--repair')
    expect(await limitDocuments().findOne({})).toMatchObject({ _id: 'thing (maxActive)', declared: 7 })
  })

  test('of single values: listed with --keys, paused with --key, and said by show', async () => {
    const lifecycle = lifecycleOf<Thing & { tenant?: string }>().define({
      name: 'thing',
      collection: 'Thing',
      phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
      limitBy: 'tenant',
      each: 2,
    })
    const replica = replicaOf(database.db, lifecycle.handle({ Creating: async (_doc, step) => step.moveTo('Created') }))
    expect(await run('pause', 'thing', '--key', 'acme')).toMatchObject({ code: 3 })
    await replica.prepare()
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', tenant: 'acme' } as never)
    expect((await run('show', 'a')).out).not.toContain('limit')
    expect(await run('pause', 'thing', '--key', 'acme', '--by', 'ana', '--reason', 'they asked')).toMatchObject({
      code: 0,
      out: 'limit thing tenant=acme: paused by ana until it is resumed: they asked\n',
    })
    await replica.runOnce()
    expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Creating' })
    expect((await run('show', 'a')).out).toContain(
      ", but its limit thing tenant=acme: paused by ana: they asked (phaselock limits resume 'thing tenant=acme').",
    )
    expect((await run('pauses')).out).toContain('limit thing tenant=acme')
    expect((await run('limits')).out).toContain('no limits')
    expect((await run('limits', '--keys')).out).toMatch(/^thing tenant=acme +2 \(paused\) +0 +- +-$/m)
    expect((await run('pause', 'thing', 'a', '--key', 'acme')).code).toBe(2)
    expect((await run('pause', '--key', 'acme')).err).toContain('expected a lifecycle with --key')
    expect((await run('resume', 'thing', '--key', 'acme')).out).toContain('limit thing tenant=acme: resumed')
    // It is asked about again after a quarter of a second.
    await eventually(async () => {
      await replica.runOnce()
      expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created' })
    })
    await replica.stop()
    // Nobody has asked for this one: it has what its lifecycle declares, and nothing is to be done.
    await things(database.db).insertOne({ _id: 'g', phase: 'Creating', tenant: 'globex' } as never)
    for (const verb of ['pause', 'resume']) await run(verb, 'thing', '--key', 'globex')
    expect((await run('show', 'g')).out).not.toContain('limits set')
    expect((await run('limits', '--keys')).out).toMatch(/^thing tenant=globex +2 +0 +- +-$/m)
    await run('limits', 'set', 'thing tenant=globex', '--slots', '0')
    expect((await run('show', 'g')).out).toContain(
      "it has 0, and 1 are needed (phaselock limits set 'thing tenant=globex' --slots declared)",
    )
  })

  test('say what they expected', async () => {
    const mistakes: [string[], number, string][] = [
      [['limits', 'set', 'api'], 2, 'expected slots, a rate or both, got neither'],
      [['limits', 'set', 'api', '--slots', '1.5'], 2, "expected a whole number from 0 to 1000000, or 'declared'."],
      [['limits', 'set', 'api', '--slots', '-1'], 2, 'expected a whole number from 0 to 1000000'],
      [
        ['limits', 'set', 'api', '--rate', '100'],
        2,
        "rate: expected how many in a span of time, such as '100/1m' or '5/1s', got '100'",
      ],
      [
        ['limits', 'set', '$x', '--slots', '1'],
        2,
        "name: expected the name of a limit: 1 to 200 characters, none of them NUL, the first neither $ nor ., got '$x'",
      ],
      [['limits', 'remove', 'nothing'], 3, "there is no limit 'nothing'; see: phaselock limits"],
    ]
    for (const [args, code, problem] of mistakes) {
      const { err, ...rest } = await run(...args)
      expect({ args, err, code: rest.code, out: rest.out }).toEqual({
        args,
        err: expect.stringContaining(problem),
        code,
        out: '',
      })
    }
    expect((await run('limits', '--json')).json()).toEqual([])
  })
})
