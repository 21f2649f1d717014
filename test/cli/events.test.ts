import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

interface Job {
  _id: string
  state?: 'Stopped'
}
const jobOf = (events: 'off' | 'full') =>
  lifecycleOf<Job>()
    .define({
      name: 'job',
      collection: 'Job',
      phases: { Turning: { next: ['Done'] }, Done: { rest: true }, Stopped: { rest: true } },
      rules: [{ when: 'Stopped', from: ['Done'], moveTo: 'Stopped' }],
      events,
    })
    .handle({
      async Turning(_doc, step) {
        const n = Number(step.name ?? 0)
        return n < 24 ? step.again({ step: `${n + 1}` }) : step.moveTo('Done')
      },
    })

describe('phaselock events', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })

  async function turned(events: 'off' | 'full') {
    const replica = new Replica({ db: database.db, lifecycles: [jobOf(events)], logger: silentLogger })
    replicas.push(replica)
    await replica.prepare()
    const jobs = database.db.collection<Job & { phase: string }>('Job')
    await jobs.insertOne({ _id: 'j', phase: 'Turning' })
    await replica.runOnce()
    return { replica, jobs }
  }

  test('lists what has happened to a document, with what only its own history has, each once', async () => {
    const { replica, jobs } = await turned('full')
    await jobs.updateOne({ _id: 'j' }, { $set: { state: 'Stopped' } })
    await replica.runOnce()
    const all = (await run('events', 'j', '--limit', '1000', '--json')).json() as { outcome: string; by: string }[]
    expect(all).toHaveLength(26)
    expect(all[0]).toMatchObject({ by: 'rule', from: 'Done', to: 'Stopped' })
    const tokens = all.filter(({ by }) => by !== 'rule').map(({ by }) => by)
    expect(new Set(tokens).size).toBe(tokens.length)
    const listed = await run('events', 'j', '--lifecycle', 'job', '--limit', '2')
    expect(listed.out).toMatch(/^WHEN +DOCUMENT +STEP +OUTCOME +FROM -> TO +TOOK +BY$/m)
    expect(listed.out).toMatch(/^.* job j +.* +(moveTo|again|rule.*) +/m)
    expect(listed.out).toContain('(the newest 2; --limit shows more)')
    const { identity } = replica
    const moves = (await run('events', '--replica', identity, '--outcome', 'moveTo', '--last', '1h', '--json')).json()
    expect(moves).toMatchObject([{ document: 'j', to: 'Done', replica: identity }])
    expect((await run('events', '--until', '2020-01-01T00:00:00Z')).out).toBe('no such events\n')
  })

  test('shows a document its own history where its lifecycle keeps none', async () => {
    await turned('off')
    const events = (await run('events', 'j', '--json')).json() as { outcome: string; replica: string }[]
    expect(events).toHaveLength(20)
    expect(events[0]).toMatchObject({ lifecycle: 'job', document: 'j', outcome: 'moveTo', from: 'Turning', to: 'Done' })
    expect(events[0]!.replica).toBe(replicas[0]!.identity)
    expect((await run('events', '--lifecycle', 'nope')).code).toBe(2)
    const unknown = await run('events', '--outcome', 'moveto')
    expect(unknown).toMatchObject({ code: 2, err: expect.stringContaining("got 'moveto'; did you mean 'moveTo'?") })
  })
})
