import { describe, expect, jest, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { Replica } from '../../src/index.js'
import { CLAIM_INDEX } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { thing, thingWith } from '../support/thing.js'
import { THINGS, useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('phaselock check and set-lock-timeout', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (args: readonly string[]) =>
    folder().run(args, { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS })
  const things = () => database.db.collection('Thing') as unknown as Collection<{ _id: unknown } & Document>
  const looked = async () => {
    const lifecycles = [thingWith(async (_doc, step) => step.moveTo('Created'), thing)]
    const replica = new Replica({ db: database.db, lifecycles })
    await replica.prepare()
    await replica.tick()
    await replica.idle()
  }

  test('check: 0 when all is in order, a line for each check; 5 with what to do; --repair mends; --json', async () => {
    await looked()
    const fine = await run(['check'])
    expect(fine).toMatchObject({ code: 0, err: '' })
    expect(fine.out.split('\n').map((line) => line.slice(0, 15).trimEnd())).toEqual([
      'ok  lifecycles',
      'ok  indexes',
      'ok  never due',
      'ok  leases',
      'ok  limits',
      'ok  multikey',
      'ok  query plans',
      'ok  shapes',
      'ok  phases',
      'ok  clocks',
      'ok  state',
      'ok  repositorie', // of the packages that are installed beside phaselock
      '',
    ])
    await things().dropIndex('phase_1_lockedAt_1_updatedAt_1')
    await things().insertOne({ _id: 'a', phase: 'Creatng' })
    const found = await run(['check'])
    expect(found.code).toBe(5)
    expect(found.out).toContain(`!!  indexes       index ${JSON.stringify(CLAIM_INDEX)} of Thing: it is missing\n`)
    expect(found.out).toMatch(/ {4} +-> run db\.getCollection\('Thing'\)\.createIndex/)
    expect(found.out).toContain(
      "!!  phases        Thing: 1 document in the phase 'Creatng', which thing doesn't have\n",
    )
    expect(found.err).toMatch(
      /^phaselock: expected nothing to be found, got \d+ findings; phaselock check --repair repairs 1\n$/,
    )

    const repaired = await run(['check', '--repair', '--json'])
    expect(repaired.code).toBe(5)
    const said = repaired.json() as { checks: { check: string; findings: Document[] }[]; found: number; left: number }
    expect(said).toMatchObject({ found: 2, left: 1 })
    expect(said.checks.find(({ check }) => check === 'indexes')!.findings).toMatchObject([{ repair: 'done' }])
    expect(JSON.parse(repaired.err)).toMatchObject({ error: { name: 'FindingsLeft', exitCode: 5 } })
    await things().deleteOne({ _id: 'a' } as never)
    expect((await run(['check'])).code).toBe(0)
  })

  test('set-lock-timeout: says what is in force when; one at a time; sleeps are encoded anew', async () => {
    expect(await run(['set-lock-timeout', 'thing', '1m'])).toMatchObject({
      code: 3,
      err: expect.stringContaining('no replica of thing has run in this database yet'),
    })
    await looked()
    const resumeAt = new Date(Date.now() + 3_600_000)
    const asleep = { lockedAt: new Date(resumeAt.getTime() - 30_000), progress: { resumeAt } }
    await things().insertOne({ _id: 'asleep', phase: 'Creating', ...asleep })
    for (const wrong of ['30', 'soon', '500ms', '25h']) {
      const refused = await run(['set-lock-timeout', 'thing', wrong])
      expect(refused.code).toBe(2)
      expect(refused.err).toContain(`expected a lockTimeout from 1s to 24h, such as 45s or 2m, got '${wrong}'`)
    }
    expect((await run(['set-lock-timeout', 'thing', '30s'])).out).toBe('thing: lockTimeout is already 30 s\n')
    const longer = await run(['set-lock-timeout', 'thing', '1m'])
    expect(longer).toMatchObject({ code: 0, err: '' })
    expect(longer.out).toMatch(
      /^thing: lockTimeout 30 s -> 1 min: documents of crashed replicas wait that long from now on; leases last that long from .*Z \(in 10 s\); its definition says 30 s\n$/,
    )
    expect(await things().findOne({ _id: 'asleep' } as never)).toMatchObject({
      lockedAt: new Date(resumeAt.getTime() - 60_000),
    })
    expect((await run(['show', 'asleep'])).out).toMatch(/^Sleeps, due in \d+ /m)
    const lifecycles = database.db.collection<{ _id: string }>('phaselock.lifecycles')
    // Still under way, however long the commands take.
    await lifecycles.updateOne({ _id: 'thing' }, { $set: { lockTimeoutSince: new Date(Date.now() + 60_000) } } as never)
    const soon = await run(['set-lock-timeout', 'thing', '10s'])
    expect(soon.code).toBe(4)
    expect(soon.err).toContain('the lockTimeout of thing is already being changed, until ')
    await lifecycles.updateOne({ _id: 'thing' }, { $set: { lockTimeoutSince: new Date(0) } } as never)
    const shorter = await run(['set-lock-timeout', 'thing', '10s', '--json'])
    expect(shorter.json()).toMatchObject({ lifecycle: 'thing', lockTimeoutMs: 10_000, kind: 'changed', wasMs: 60_000 })
    expect((await run(['set-lock-timeout', 'thong', '10s'])).code).toBe(2)
  })

  test('lifecycles: lists what is registered; forget takes a retired one out, once nobody has it', async () => {
    const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })
    expect((await run('lifecycles')).out).toBe('no lifecycles: a replica registers its own when it starts\n')
    await looked()
    await things().insertOne({ _id: 'a', phase: 'Created' })
    expect((await run('lifecycles')).out).toMatch(
      /^LIFECYCLE +COLLECTION +PHASES +DOCUMENTS +REPLICAS +LOOKED AFTER\nthing +Thing +Creating, Created, Deleting, Deleted +1 +- +(now|\d+ m?s ago)\n$/,
    )
    expect(await run('lifecycles', 'forget', 'thing')).toMatchObject({
      code: 4,
      err: expect.stringContaining(
        'phaselock: lifecycle thing was not forgotten: 1 document of Thing is in its phases',
      ),
    })
    await things().deleteMany()
    expect(await run('lifecycles', 'forget', 'thing', '--reason', 'by mistake')).toMatchObject({
      code: 0,
      out: 'lifecycle thing: forgotten; a replica that runs it registers it again\n',
    })
    expect(await run('lifecycles', 'forget', 'thing')).toMatchObject({
      code: 3,
      err: "phaselock: no lifecycle 'thing' is registered here; see: phaselock lifecycles\n",
    })
    expect((await run('lifecycles', '--json')).json()).toEqual([])
  })
})
