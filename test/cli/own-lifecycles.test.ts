import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import { describe, expect, jest, test } from '@jest/globals'
import { type Document, MongoClient, ObjectId, UUID } from 'mongodb'
import { Output } from '../../src/cli/output.js'
import { runCli } from '../../src/cli/run.js'
import { PARKED_AT } from '../../src/lock/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { type CommandResult, useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

/** A user's own kinds: boxes work by plain handlers, parcels by methods of a Nest provider. */
const LIFECYCLES = `
import { lifecycleOf } from 'phaselock'
export const box = lifecycleOf().define({
  name: 'box',
  collection: 'Box',
  phases: { Packing: { next: ['Packed'] }, Packed: { rest: true }, Opening: { next: ['Opened'] }, Opened: { final: true } },
  rules: [{ when: 'Opened', from: ['Packed'], moveTo: 'Opening' }],
  fields: { progress: 'work' },
  maxAttempts: 300,
})
export const parcel = lifecycleOf().define({
  name: 'parcel',
  collection: 'Parcel',
  phases: { Sending: { next: ['Sent'] }, Sent: { rest: true } },
})
`
const APP = `
import 'reflect-metadata'
import { Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { PhaselockModule } from 'phaselock/nest'
import { box, parcel } from './lifecycles.mjs'

class Parcels {
  async sending(_parcel, step) {
    return step.moveTo('Sent')
  }
}
parcel.OnPhase('Sending')(Parcels.prototype, 'sending', Object.getOwnPropertyDescriptor(Parcels.prototype, 'sending'))

const boxes = box.handle({
  async Packing(doc, step) {
    if (doc.fails) throw new Error('no tape\\nat all')
    if (doc.waits) return step.wait('the lid', { for: '1h' })
    return doc.parks ? step.park('it is broken') : step.moveTo('Packed')
  },
  Opening: async (_doc, step) => step.moveTo('Opened'),
})

class PostModule {}
Module({ imports: [PhaselockModule.forFeature([parcel])], providers: [Parcels] })(PostModule)
export class AppModule {}
Module({ imports: [ScheduleModule.forRoot(), PostModule, PhaselockModule.forRoot({ lifecycles: [boxes], name: 'api' })] })(AppModule)
export const start = () => NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false })
`
const MAIN = `
import { start } from './app.module.mjs'
const app = await start()
console.log('started')
process.once('SIGTERM', async () => { await app.close(); process.exit() })
`

describe('the command line on the lifecycles of an app, none of which it ships', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const run = (...args: readonly string[]) => folder().run(args, { MONGODB_URI: database.uri })
  const collection = (name: string) => database.db.collection<Document & { _id: unknown }>(name)

  async function startApp() {
    await folder().linkPackages()
    await writeFile(join(folder().path, 'lifecycles.mjs'), LIFECYCLES)
    await writeFile(join(folder().path, 'app.module.mjs'), APP)
    await writeFile(join(folder().path, 'main.mjs'), MAIN)
    const app = folder().start(process.execPath, ['main.mjs'], { MONGODB_URI: database.uri })
    await app.printed(/started/)
    return app
  }

  const onlyJson = ({ out }: CommandResult) =>
    out
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))

  test('works without any file, also for what waits, fails and is parked', async () => {
    const app = await startApp()
    const ids = [7, new ObjectId('66f0a1b2c3d4e5f60718293a'), new UUID('0b3a8f1e-5b1c-4f67-9d0a-1b2c3d4e5f60')]
    await collection('Box').insertMany([
      { _id: 'b1', phase: 'Packing', waits: true },
      { _id: 'b2', phase: 'Packing', parks: true },
      { _id: 'b3', phase: 'Packing', parks: true },
      { _id: 'b4', phase: 'Packing', fails: true },
      ...ids.map((_id) => ({ _id, phase: 'Packing' })),
    ])
    expect(await run('add', 'parcel', '{"_id": "b1"}')).toMatchObject({ code: 0 })
    await eventually(async () => {
      expect(await collection('Box').countDocuments({ phase: 'Packed' })).toBe(3)
      expect(await collection('Box').countDocuments({ lockedAt: PARKED_AT })).toBe(2)
      expect(
        await collection('Box').countDocuments({ 'work.error': { $exists: true }, 'work.attempts': { $gte: 1 } }),
      ).toBe(1)
      expect(await collection('Parcel').countDocuments({ phase: 'Sent' })).toBe(1)
    })

    const counts = await run('list', '--fresh')
    expect(counts.out).toMatch(/^LIFECYCLE +PHASE.*\nbox +Packing +4 .* 2\nbox +Packed +3 +- {2,}-\nparcel +Sent +1/m)
    expect(counts.out).not.toMatch(/gateway|runtime/)
    expect(await run('count', 'parcel', '--fresh')).toMatchObject({ code: 0, out: expect.not.stringMatching(/box/) })

    const troubled = await run('list', '--parked', '--failing', '--waiting')
    expect(troubled.out).toMatch(/^LIFECYCLE +ID +PHASE +STATE +CONDITION +WHY\n/)
    expect(troubled.out).toMatch(/^box +b1 .* sleeping, due in (1 h|\d+ min) +waits for the lid, since /m)
    expect(troubled.out).toMatch(/^box +b2 .* parked +it is broken$/m)
    expect(troubled.out).toMatch(/^box +b4 .* error \d+ of 300: no tape$/m)
    expect((await run('list', '--waiting', '--json')).json()).toMatchObject([
      { lifecycle: 'box', document: { _id: 'b1' } },
    ])

    for (const text of ['7', '66f0a1b2c3d4e5f60718293a', '0b3a8f1e-5b1c-4f67-9d0a-1b2c3d4e5f60'])
      expect((await run('show', text)).out).toMatch(
        /^box \S+: Packed\nRests in Packed \(no state is set\); waits for its owner's state: Opened leads to Opening\.\n/,
      )
    expect((await run('show', 'b2')).out).toMatch(/^ {2}work\.error +/m)
    expect((await run('check')).out).toMatch(/^ok {2}lifecycles +2 registered$/m)

    const replicas = await run('replicas')
    expect(replicas.out).toMatch(
      /^REPLICA +APP +PHASELOCK +LIFECYCLES \(HELD, FREE\) +TICK +SEEN\napi~\w+ +\S+ +[\d.]+ +box \(\d+, \d+\), parcel \(\d+, \d+\) +\d+ ms +\S.*\n$/,
    )
    const [listed] = (await run('replicas', '--json')).json() as { name: string }[]
    expect(listed).toMatchObject({ lifecycles: [{ name: 'box' }, { name: 'parcel' }], live: true })
    const alone = await run('replicas', listed!.name)
    expect(alone.out).toMatch(new RegExp(`^${listed!.name}: live, seen `))
    expect(alone.out).toMatch(/^box +[0-9a-f]{12} +Packing/m)
    expect(await run('replicas', 'nobody~1')).toMatchObject({ code: 3, out: '' })

    const { name } = listed!
    await collection('Box').insertOne({ _id: 'h1', phase: 'Packing', lockedAt: new Date(), lockedBy: `${name}#9.1` })
    expect((await run('show', 'h1')).out).toMatch(new RegExp(`^${name} \\(.+, pid \\d+\\) is live: seen `, 'm'))
    app.child.kill('SIGKILL')
    await app.exited
    const aMinuteAgo = { $subtract: ['$$NOW', 60_000] }
    await collection('phaselock.replicas').updateMany({}, [{ $set: { seenAt: aMinuteAgo } }])
    expect((await run('show', 'h1')).out).toMatch(new RegExp(`^${name} .* is dead: last seen 1 min ago`, 'm'))
    expect((await run('replicas')).out).toMatch(/ 1 min ago: dead, 1 still leased by it$/m)
    expect((await run('replicas', '--dead-after', '5m')).out).toMatch(/ 1 min ago$/m)
    expect((await run('replicas', name)).out).toMatch(/^box h1 +Packing +/m)
  })

  test('many ids at once, one _id in two lifecycles, and names that are nearly right', async () => {
    const app = await startApp()
    app.child.kill('SIGTERM')
    await app.exited
    const asleep = { phase: 'Packing', lockedAt: new Date(Date.now() + 3_600_000), work: { waitingFor: 'x' } }
    await collection('Box').insertMany([
      { _id: 'b1', ...asleep },
      { _id: 'b2', ...asleep },
      { _id: 'p1', phase: 'Packing', lockedAt: PARKED_AT, work: { attempts: 3 } },
      { _id: 'p2', phase: 'Packing', lockedAt: PARKED_AT, work: { attempts: 3 } },
    ])
    await collection('Parcel').insertOne({ _id: 'b2', phase: 'Sent' })

    const woken = await run('wake', 'b1', 'nobody', 'p1')
    expect(woken).toMatchObject({ code: 4, out: 'box b1: woken: it is due now\n' })
    expect(woken.err).toMatch(
      /^phaselock: no document with the _id nobody in box, parcel.*\nphaselock: box p1 can't be woken: /,
    )
    const unparked = await run('unpark', 'p1', 'p2', '--by', 'anna', '--json')
    expect(unparked).toMatchObject({ code: 0, err: '' })
    expect(onlyJson(unparked)).toEqual([
      [
        { lifecycle: 'box', _id: 'p1', by: 'anna' },
        { lifecycle: 'box', _id: 'p2', by: 'anna' },
      ],
    ])

    const shown = await run('show', 'b2')
    expect(shown.out).toMatch(/^box b2: Packing\n/)
    expect(shown.out).toMatch(/With the same _id .*\n {2}parcel b2: Sent\./)
    const both = await run('remove', 'b2', '--yes')
    expect(both).toMatchObject({ code: 2, out: '' })
    expect(both.err).toBe(
      'phaselock: 2 lifecycles have a document with the _id b2: box (Packing, sleeping), parcel (Sent, resting); say which: --lifecycle box\n',
    )
    // At a terminal it is a question.
    const [out, err] = [new PassThrough(), new PassThrough()]
    const answering = (text: string) =>
      runCli(['remove', 'b2', '--yes'], {
        env: { MONGODB_URI: database.uri },
        stdin: Object.assign(Readable.from([text]), { isTTY: true }),
        output: new Output(out, err),
      })
    expect(await answering('\n')).toBe(2)
    expect(String(err.read())).toMatch(
      /^the _id b2 is in several lifecycles:\n {2}1 {2}box\n {2}2 {2}parcel\nwhich one\? \[1-2\]\n/,
    )
    expect(await answering('2\n')).toBe(0)
    expect(String(out.read())).toBe('parcel b2: removed\n')
    expect(await run('list', 'parcle')).toMatchObject({
      code: 2,
      err: expect.stringContaining("expected a lifecycle (box, parcel), got 'parcle'; did you mean 'parcel'?"),
    })
    expect((await run('show', 'b1', '--lifecycle', 'bx')).err).toContain("did you mean 'box'?")
  })

  test('--json prints nothing but JSON, in every command', async () => {
    const app = await startApp()
    app.child.kill('SIGTERM')
    await app.exited
    const doing: readonly (readonly string[])[] = [
      ['add', 'box', '{"_id": "j1"}'],
      ['list'],
      ['list', '--failing'],
      ['count'],
      ['show', 'j1'],
      ['set-state', 'j1', 'Opened'],
      ['wake', 'j1'],
      ['unpark', 'j1'],
      ['remove', 'j1', '--yes'],
      ['check'],
      ['set-lock-timeout', 'box', '40s'],
      ['replicas'],
      ['schedules'],
      ['schedules', 'set', 's1', '{"task": "t", "cron": "0 6 * * *"}'],
      ['schedules', 'pause', 's1'],
      ['schedules', 'resume', '--all'],
      ['run', 's1'],
      ['runs', 's1'],
      ['schedules', 'remove', 's1'],
      ['locks', '--all'],
      ['locks', 'migrate'],
      ['locks', 'release', 'none', '--yes'],
      ['regions'],
      ['regions', 'remove', 'none'],
      ['orphans', '--kubeconfig', './none'],
    ]
    for (const args of doing) {
      const { code, out, err } = await run(...args, '--json')
      const [printed, said] = [out, err].map((text) => text.split('\n').filter((line) => line !== ''))
      for (const line of [...printed!, ...said!]) expect(() => JSON.parse(line)).not.toThrow()
      expect([args, printed!.length, said!.length]).toEqual([args, printed!.length > 0 ? 1 : 0, code === 0 ? 0 : 1])
    }
    for (const args of [['lst'], ['show'], ['list', '--pased'], ['list', '--limit', '0'], ['list', 'bx']]) {
      const { code, out, err } = await run(...args, '--json')
      expect([args, code, out]).toEqual([args, 2, ''])
      expect(JSON.parse(err)).toMatchObject({ error: { name: 'UsageError', exitCode: 2 } })
    }
  })

  test('a file or the Nest module of the app may be given, with methods as handlers', async () => {
    const app = await startApp()
    app.child.kill('SIGTERM')
    await app.exited
    await collection('Parcel').insertOne({ _id: 'p', phase: 'Sent' })
    for (const file of ['./lifecycles.mjs', './app.module.mjs']) {
      expect(await run('list', 'parcel', '--lifecycles', file)).toMatchObject({ code: 0, err: '' })
      expect((await run('list', 'x', '--lifecycles', file)).err).toMatch(
        /expected a lifecycle \((box, parcel|parcel, box)\)/,
      )
    }
    await writeFile(join(folder().path, 'none.mjs'), 'export const a = 1, b = [2]')
    expect(await run('list', '--lifecycles', './none.mjs')).toMatchObject({
      code: 2,
      err: expect.stringMatching(/expected a module that exports lifecycles, .* or a Nest module; it exports a, b\n$/),
    })
  })

  test('entries of an older version: what can be told is told, with what is missing', async () => {
    const entries = database.db.collection<Document & { _id: string }>('phaselock.lifecycles')
    await entries.insertOne({ _id: 'box', collection: 'Box', lockTimeout: 30_000, phases: ['Packing', 'Packed'] })
    await collection('Box').insertOne({ _id: 'b1', phase: 'Packed' })
    const listed = await run('list', 'box', '--log', 'json')
    expect(listed).toMatchObject({ code: 0, out: expect.stringMatching(/^b1 +Packed +- +due$/m) })
    expect(listed.err).toContain('box: of Packing, Packed only the name is known')
  })
})

describe('a database without lifecycles', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const READING: readonly (readonly string[])[] = [
    ['list'],
    ['list', '--parked'],
    ['count'],
    ['show', 'b1'],
    ['check'],
    ['replicas'],
    ['schedules'],
    ['runs', 'nightly'],
    ['locks'],
  ]

  test('what was looked at, and what to do; nothing is created by reading', async () => {
    const client = await new MongoClient(database.uri).connect()
    try {
      const name = `${database.db.databaseName}-none`
      const uri = new URL(database.uri)
      const where = `${uri.host}${uri.pathname}`
      const results = await Promise.all(
        READING.map((args) => folder().run([...args, '--database', name], { MONGODB_URI: database.uri })),
      )
      for (const [i, result] of results.entries()) {
        const needsNone = ['schedules', 'runs', 'locks'].includes(READING[i]![0]!)
        if (needsNone) continue
        expect(result).toMatchObject({ code: 3, out: '' })
        expect(result.err).toContain(`phaselock: no lifecycles in the database '${name}' of mongodb://${where}`)
        // The other, where tests beside this one have lifecycles on the server at this moment.
        expect(result.err).toMatch(
          /start your app \(or phaselock start\) on it, or name another|there are some in '.*': name the database with --database/,
        )
      }
      const { databases } = await client.db().admin().listDatabases({ nameOnly: true })
      expect(databases.map((one) => one.name)).not.toContain(name)
      expect(await readdir(folder().path)).toEqual([])
    } finally {
      await client.close()
    }
  })

  test('the database that has some is named', async () => {
    await database.db.collection('phaselock.lifecycles').insertOne({ collection: 'Box' })
    const result = await folder().run(['list', '--database', 'nothing-here', '--json'], { MONGODB_URI: database.uri })
    expect(result).toMatchObject({ code: 3, out: '' })
    const { error } = JSON.parse(result.err)
    expect(error).toMatchObject({ name: 'NotFound', exitCode: 3 })
    expect(error.message).toMatch(
      new RegExp(`there are some in .*'${database.db.databaseName}'.*: name the database with --database`),
    )
  })
})

describe('--watch', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const watch = (...args: readonly string[]) => folder().phaselock([...args, '--watch'], { MONGODB_URI: database.uri })

  test('shows changes until Ctrl-C, which is no failure; with --json one value on each line', async () => {
    const entries = database.db.collection<Document & { _id: string }>('phaselock.lifecycles')
    await entries.insertOne({
      _id: 'box',
      collection: 'Box',
      lockTimeout: 30_000,
      phases: ['Packed'],
      graph: [{ name: 'Packed', kind: 'resting', next: [], entry: true, keepForMs: 0 }],
    })
    const boxes = database.db.collection<Document & { _id: string }>('Box')
    await boxes.createIndex({ phase: 1, lockedAt: 1, updatedAt: 1 }) // as a replica would
    await boxes.insertOne({ _id: 'b1', phase: 'Packed' })
    const [list, json, show] = [watch('list', 'box'), watch('count', '--json'), watch('show', 'b1')]
    await list.printed(/b1 .*\n\nID .*\nb1/)
    await show.printed(/Rests in Packed/)
    await json.printed(/\n.*\n/)
    await boxes.insertOne({ _id: 'b2', phase: 'Packed' })
    await list.printed(/b1 .*\nb2 /)
    await json.printed(/"documents":\{"n":2\}/)
    for (const one of [list, json, show]) one.child.kill('SIGINT')
    expect(await Promise.all([list.exited, json.exited, show.exited])).toEqual([0, 0, 0])
    for (const line of json.out.trimEnd().split('\n')) expect(JSON.parse(line)).toMatchObject([{ lifecycle: 'box' }])
  })
})
