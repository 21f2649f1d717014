import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from '@jest/globals'
import { type INestApplicationContext, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { transform } from '@swc/core'
import type { Db, Document } from 'mongodb'
import { Replica } from 'phaselock'
import { PhaselockModule } from 'phaselock/nest'
import { WebsiteHandlers, website } from '../../examples/moving-from-cron/after.js'
import { TASK_LOCK_INIT_TIME, WebsiteTaskService } from '../../examples/moving-from-cron/before.js'
import { WebHost } from '../../examples/moving-from-cron/web-host.js'
import { sleep } from '../../src/time/index.js'
import { useCliFolder } from '../cli/cli-process.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate } from '../support/thing.js'
import { Mongosh } from './mongosh.js'
import { codeBlocks, readPage } from './page.js'

const PAGE = 'docs/guides/moving-from-cron-services.md'
const open: INestApplicationContext[] = []

afterEach(async () => {
  await Promise.all(open.splice(0).map((app) => app.close()))
})

const database = useDatabase()
const websites = (db: Db) => db.collection<Document & { _id: string }>('Website')

/** The outside world takes its time, says when two work on one site at once, and counts who made how many sites. */
class WatchedHost {
  private readonly world = new WebHost()
  private readonly busy = new Set<string>()
  readonly effects = this.world.effects
  readonly overlapping: string[] = []
  readonly created = { old: 0, new: 0 }

  /** The world as one side uses it. */
  for(side: 'old' | 'new'): WebHost {
    const { world } = this
    const alone = async <T>(host: string, work: () => Promise<T>): Promise<T> => {
      if (this.busy.has(host)) this.overlapping.push(host)
      this.busy.add(host)
      await sleep(5)
      const result = await work()
      this.busy.delete(host)
      return result
    }
    return Object.assign(new WebHost(), {
      ensureCertificate: (host: string) => alone(host, () => world.ensureCertificate(host)),
      createSite: (host: string) => {
        this.created[side] += 1
        return alone(host, () => world.createSite(host))
      },
      removeSite: (host: string) => alone(host, () => world.removeSite(host)),
      removeCertificate: (host: string) => world.removeCertificate(host),
    })
  }
}

/** A pod of the new kind: an app with the module, its cron ticking. */
async function startNewPod(host: WebHost, name: string): Promise<void> {
  @Module({
    imports: [PhaselockModule.forFeature([website])],
    providers: [WebsiteHandlers, { provide: WebHost, useValue: host }],
  })
  class WebsiteModule {}
  @Module({ imports: [ScheduleModule.forRoot(), WebsiteModule, PhaselockModule.forRoot({ db: database.db, name })] })
  class AppModule {}
  open.push(await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false }))
}

/** A pod of the old kind, ticking all the time until it is stopped. */
function oldPod(host: WebHost): () => Promise<void> {
  const service = new WebsiteTaskService(database.db, host)
  let stopped = false
  const running = (async () => {
    while (!stopped) {
      await service.tick()
      await sleep(30)
    }
  })()
  return async () => {
    stopped = true
    await running
  }
}

async function phases(sites: ReturnType<typeof websites>): Promise<Record<string, number>> {
  const counts = await sites.aggregate([{ $group: { _id: '$phase', n: { $sum: 1 } } }]).toArray()
  return Object.fromEntries(counts.map(({ _id, n }) => [_id, n]))
}

const inserted = (_id: string) => {
  const now = new Date()
  return { _id, state: 'Running', phase: 'Creating', lockedAt: TASK_LOCK_INIT_TIME, createdAt: now, updatedAt: now }
}

describe('the old task service and the lifecycle side by side', () => {
  test('at least 100 documents through their whole life, every effect once, by both', async () => {
    const host = new WatchedHost()
    const sites = websites(database.db)
    const kept: string[] = []
    const doomed: string[] = []
    await Promise.all([startNewPod(host.for('new'), 'new-1'), startNewPod(host.for('new'), 'new-2')])
    const stops = [oldPod(host.for('old')), oldPod(host.for('old'))]
    for (let batch = 0; batch < 20 && (batch < 2 || Math.min(host.created.old, host.created.new) < 10); batch += 1) {
      const names = Array.from({ length: 50 }, (_, n) => `site-${batch}-${n}.example.org`)
      await sites.insertMany(names.map(inserted))
      kept.push(...names.slice(25))
      doomed.push(...names.slice(0, 25))
      await eventually(async () => expect(await sites.countDocuments({ phase: 'Created' })).toBeGreaterThan(0))
      // In the middle of all kinds of steps of both.
      await sites.updateMany({ _id: { $in: doomed } }, { $set: { state: 'Deleted' } })
      await eventually(async () => expect(await phases(sites)).toEqual({ Created: kept.length }), {
        timeoutMs: 120_000,
      })
    }
    await sites.updateMany({}, { $set: { state: 'Deleted' } })
    await eventually(async () => expect(await sites.countDocuments()).toBe(0), { timeoutMs: 120_000 })
    await Promise.all(stops.map((stop) => stop()))

    expect(host.overlapping).toEqual([])
    expect(host.effects.filter((effect, at) => host.effects.indexOf(effect) !== at)).toEqual([])
    const done = new Set(host.effects)
    expect(kept.filter((name) => !done.has(`create ${name}`))).toEqual([])
    expect([...kept, ...doomed].filter((name) => !done.has(`remove ${name}`))).toEqual([])
    for (const name of doomed.filter((one) => done.has(`create ${one}`))) {
      expect(host.effects.indexOf(`remove ${name}`)).toBeGreaterThan(host.effects.indexOf(`create ${name}`))
    }
    expect(host.created.old).toBeGreaterThanOrEqual(10)
    expect(host.created.new).toBeGreaterThanOrEqual(10)
  }, 600_000)

  test("what an old pod holds or has put to sleep is not touched, and the page's query finds it", async () => {
    const { db } = database
    const sites = websites(db)
    const [leased, ours] = [gate(), gate()]
    const replica = new Replica({
      db,
      lifecycles: [
        website.handle({
          async Creating(site, step) {
            if (site._id === 'ours, held') await ours.wait
            return site._id === 'ours, asleep' ? step.wait('rain', { for: '10m' }) : step.moveTo('Created')
          },
          Deleting: async (_site, step) => step.moveTo('Deleted'),
        }),
      ],
    })
    await sites.insertMany(['ours, asleep', 'ours, held', 'ours, done'].map(inserted))
    await replica.tick()
    await eventually(() => expect(replica.status()).toMatchObject({ held: 1, running: 1 }))

    const [query] = codeBlocks(await readPage(PAGE)).filter(({ code }) => code.startsWith('lifecycle = '))
    const shell = new Mongosh(database.uri, db.databaseName)
    const found = () => (shell.run(query!.code) as Document[]).map(({ _id }) => _id).sort()
    expect(found()).toEqual([])

    // Leased by an old pod; asleep for it; and a lease of ours that had run out when it came, so that our token is still there.
    const agoMs = (ms: number) => new Date(Date.now() - ms)
    await sites.insertMany([
      inserted('theirs, held'),
      { ...inserted('theirs, asleep'), updatedAt: agoMs(90_000), lockedAt: agoMs(31_000) },
      {
        ...inserted('theirs, taken over'),
        lockedAt: agoMs(40_000),
        lockedBy: 'new~1#1.1',
        progress: { lockedAt: agoMs(40_000) },
      },
      { ...inserted('parked'), lockedAt: new Date('9999-12-31') },
    ])
    const host = (ready: boolean) =>
      Object.assign(new WebHost(), { ensureCertificate: async () => ({ ready }), createSite: () => leased.wait })
    const old = (ready: boolean) => new WebsiteTaskService(db, host(ready)).handleCreatingPhase()
    const working = [old(true)]
    const isLeased = async (id: string) => (await sites.findOne({ _id: id }))!['lockedAt'] > agoMs(20_000)
    await eventually(() => isLeased('theirs, held'))
    working.push(old(true))
    await eventually(() => isLeased('theirs, taken over'))
    await old(false)
    expect(found()).toEqual(['theirs, asleep', 'theirs, held', 'theirs, taken over'])
    expect(JSON.stringify(shell.explainLast())).toMatch(/phase_1_lockedAt_1_updatedAt_1/)

    // Their owner wants something else: what sleeps for us moves at once, theirs doesn't.
    await sites.updateMany({ _id: /asleep|theirs/ }, { $set: { state: 'Deleted' } })
    await replica.tick()
    await eventually(() => expect(replica.status().held).toBe(1))
    expect(found()).toEqual(['theirs, asleep', 'theirs, held', 'theirs, taken over'])
    expect(await sites.countDocuments({ _id: /theirs/, phase: 'Creating' })).toBe(3)
    expect(await sites.countDocuments({ _id: 'ours, asleep', phase: 'Creating' })).toBe(0)

    leased.open()
    await Promise.all(working)
    expect(found()).toEqual(['theirs, asleep'])
    expect(await sites.countDocuments({ _id: /held|taken/, phase: 'Created' })).toBe(2)
    ours.open()
    await replica.stop()
    await shell.close()
  })

  test("the last step's update gives those that the old service moved a true time of entry", async () => {
    const sites = websites(database.db)
    const [entered, moved] = [new Date('2026-01-01'), new Date('2026-01-02')]
    await sites.insertMany([
      { ...inserted('by the old one'), updatedAt: moved, progress: { since: entered } },
      { ...inserted('by a replica'), updatedAt: entered, progress: { since: entered } },
      { ...inserted('held'), updatedAt: moved, lockedBy: 'new~1#1.1', progress: { since: entered } },
      inserted('never by a replica'),
    ])
    const shell = new Mongosh(database.uri, database.db.databaseName)
    const update = codeBlocks(await readPage(PAGE)).findLast(({ language }) => language === 'js')!
    expect(shell.run(update.code)).toMatchObject({ matchedCount: 1 })
    expect(await sites.findOne({ _id: 'by the old one' })).toMatchObject({ progress: { since: moved } })
    await shell.close()
  })

  describe('step by step, in a folder', () => {
    const folder = useCliFolder()
    const inFolder = (name: string) => join(folder().path, name)

    /** Writes the new version: the example's files, and the page's own module. */
    async function writeApp(): Promise<void> {
      await folder().linkPackages()
      await writeFile(inFolder('package.json'), '{"type":"module"}')
      const module = codeBlocks(await readPage(PAGE)).find(({ code }) => code.startsWith('@Module'))!.code
      const app = `
        import 'reflect-metadata'
        import { Module } from '@nestjs/common'
        import { NestFactory } from '@nestjs/core'
        import { ScheduleModule } from '@nestjs/schedule'
        import { PhaselockModule } from 'phaselock/nest'
        import { WebsiteHandlers, website } from './after.js'
        import { WebHost } from './web-host.js'
        ${module}
        @Module({ imports: [ScheduleModule.forRoot(), PhaselockModule.forRoot({ name: 'new' }), WebsiteModule] })
        class AppModule {}
        const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error'] })
        console.log('started')
        process.once('SIGTERM', async () => {
          await app.close()
          process.exit()
        })`
      const sources = { main: app } as Record<string, string>
      for (const name of ['after', 'web-host']) sources[name] = await readPage(`examples/moving-from-cron/${name}.ts`)
      for (const [name, source] of Object.entries(sources)) {
        const decorators = { legacyDecorator: true, decoratorMetadata: true }
        const jsc = {
          parser: { syntax: 'typescript', decorators: true },
          transform: decorators,
          target: 'es2022',
        } as const
        await writeFile(inFolder(`${name}.js`), (await transform(source, { jsc, module: { type: 'es6' } })).code)
      }
    }

    /** The page's commands, as a shell reads them. */
    const commands = async () =>
      codeBlocks(await readPage(PAGE))
        .filter(({ language }) => language === 'sh')
        .flatMap(({ code }) => code.split('\n'))
        .map((line) => line.replace(/ +#.*$/, ''))

    test('the page runs as it is: its module beside the old service, then each of its commands', async () => {
      await writeApp()
      const sites = websites(database.db)
      const pod = folder().start(process.execPath, ['main.js'], { MONGODB_URI: database.uri })
      await pod.printed(/started/)
      const stop = oldPod(new WebHost())
      await sites.insertMany(Array.from({ length: 10 }, (_, n) => inserted(`site-${n}.example.org`)))
      await eventually(async () => expect(await phases(sites)).toEqual({ Created: 10 }), { timeoutMs: 60_000 })
      await stop()
      const parked = { ...inserted(''), lockedAt: new Date('9999-12-31'), progress: { attempts: 20 } }
      await sites.insertMany([
        { ...inserted('shop.example.org'), phase: 'Created' },
        ...['mill.example.org', 'farm.example.org'].map((_id) => ({ ...parked, _id })),
      ])

      const results = new Map<string, string>()
      for (const line of await commands()) {
        expect(line).toMatch(/^npx phaselock /)
        const result = await folder().run(line.split(/\s+/).slice(2), { MONGODB_URI: database.uri })
        expect([line, result.code, result.err]).toEqual([line, 0, ''])
        results.set(line, result.out)
      }
      const said = (part: string) => [...results].find(([line]) => line.includes(part))![1]
      expect(said('phaselock list')).toMatch(/^website +Created +11 /m)
      expect(said('--parked --failing')).toMatch(/^website +(mill|farm)\.example\.org +Creating +Running +parked/m)
      expect(said('show')).toMatch(/^website shop\.example\.org: Created\nRests in Created/)
      expect(said('replicas')).toMatch(/^new~\w+ +\S+ +\S+ +website /m)
      expect(said('unpark')).toMatch(
        /^website mill\.example\.org: unparked by .*\nwebsite farm\.example\.org: unparked by /,
      )
      expect(said('set-lock-timeout')).toMatch(/^website: lockTimeout 30 s -> 15 s: /)
      await eventually(async () => expect(await phases(sites)).toEqual({ Created: 13 }))
    }, 240_000)

    test('every command that the text names exists', async () => {
      const help = await folder().run(['--help'])
      const known = [...help.out.matchAll(/^ {2}([a-z][a-z-]+)(?: |$)/gm)].map(([, name]) => name)
      for (const [, name] of (await readPage(PAGE)).matchAll(/phaselock ([a-z][a-z-]+)/g)) expect(known).toContain(name)
    })
  })

  test('the page shows the code of the examples', async () => {
    const squeezed = (text: string) => text.replace(/\s+/g, ' ').trim()
    const sources = squeezed(
      `${await readPage('examples/moving-from-cron/before.ts')} ${await readPage('examples/moving-from-cron/after.ts')} ${await readPage('test/docs/moving-from-cron.test.ts')}`,
    )
    for (const { code, language } of codeBlocks(await readPage(PAGE))) {
      if (language !== 'ts' || code.startsWith('@Module')) continue
      for (const part of code.split('\n\n')) expect(sources).toContain(squeezed(part))
    }
  })
})
