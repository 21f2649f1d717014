import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, jest, test } from '@jest/globals'
import { eventually, useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'
import { THINGS, useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

const PARKED = /^!! thing: 1 document parked in Creating: .*no paper.* \(phaselock causes \w{12}\)$/m

describe('phaselock status', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })

  test('tells who works, what waits for what, and what needs a person', async () => {
    const lifecycle = thingWith(async (doc, step) =>
      doc._id === 'parks' ? step.park('no paper') : step.wait('the certificate', { on: 'certificate', for: '1h' }),
    )
    const replica = replicaOf(database.db, lifecycle, { name: 'one' })
    await replica.prepare()
    expect((await run('status')).out).toMatch(
      /^!! no replica is running \(phaselock causes \w{12}\)\n\nlive replicas: none$/m,
    )
    await replica.start()
    await things(database.db).insertMany([
      { _id: 'waits', phase: 'Creating' },
      { _id: 'parks', phase: 'Creating' },
    ])
    await replica.tick()
    await replica.idle()
    await (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
    const { out, code } = await run('status')
    expect(code).toBe(0)
    expect(out).toMatch(/^live replicas: 1 of \d/m)
    expect(out).toMatch(/^thing +1 +2 +0 +- +0 +1 +0 +0 +1$/m)
    expect(out).toMatch(/^thing +Creating +certificate +1 +\d+ \w+ ago$/m)
    expect(out).toMatch(/^census of thing +\d.* one~/m)
    expect(out).toMatch(PARKED)
    expect((await run('status', '--json')).json()).toMatchObject({
      lifecycles: [{ lifecycle: 'thing', replicas: 1, parked: { n: 1 }, census: { waits: [{ on: 'certificate' }] } }],
      causes: { needsYou: 1, rows: [{ kind: 'park', documents: { n: 1 }, ids: ['parks'] }] },
      problems: [expect.stringMatching(/^thing: 1 document parked in Creating: /)],
    })
    expect(await run('status', '--exit-code')).toMatchObject({
      ...{ code: 5, err: 'phaselock: expected nothing to need a person, got 1 problem\n' },
      out: expect.stringMatching(PARKED),
    })
    expect(await run('status', '--exit-code', '--watch')).toMatchObject({
      code: 2,
      err: expect.stringContaining('expected --exit-code or --watch, got both'),
    })
    const { causes } = (await run('status', '--json')).json() as { causes: { rows: { id: string }[] } }
    await run('causes', 'ack', causes.rows[0]!.id, '--until', '1h', '--by', 'ana')
    expect(await run('status', '--exit-code')).toMatchObject({ code: 0, err: '' })
    await things(database.db).deleteMany()
    expect((await run('status', '--fresh')).out).toMatch(/^nothing needs a person: .*; 0 due, 0 held, 0 asleep\n\n/)
    expect(await run('status', '--fresh', '--exit-code')).toMatchObject({ code: 0, err: '' })
    await replica.stop()
  })

  test('a heap snapshot is written on demand, while it runs', async () => {
    const env = { MONGODB_URI: database.uri, NODE_OPTIONS: '--heapsnapshot-signal=SIGUSR2' }
    const one = folder().phaselock(['start', '--lifecycles', THINGS], env)
    await one.printed(/is running/)
    process.kill(one.child.pid!, 'SIGUSR2')
    const written = await eventually(async () => {
      const [name = 'none'] = (await readdir(folder().path)).filter((file) => file.endsWith('.heapsnapshot'))
      return JSON.parse(await readFile(join(folder().path, name), 'utf8')) as { snapshot: { node_count: number } }
    })
    expect(written.snapshot.node_count).toBeGreaterThan(10_000)
    one.child.kill('SIGTERM')
    expect(await one.exited).toBe(0)
  })

  test('start --ticks ends by itself, in order', async () => {
    const { out, code } = await run('start', '--ticks', '2', '--lifecycles', THINGS)
    expect(code).toBe(0)
    expect(out).toMatch(/is running[\s\S]*^stopped$/m)
    expect((await run('start', '--ticks', '0')).err).toContain('expected a whole number from 1')
    expect(await run('start', '--ticks', '2', '--workers', '2')).toMatchObject({
      code: 2,
      err: expect.stringContaining('expected --ticks or --workers, got both'),
    })
  })
})
