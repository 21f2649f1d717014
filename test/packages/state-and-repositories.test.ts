import { randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'
import { InstalledFolder, run } from './installed-folder.js'

jest.setTimeout(120_000)

const root = resolve(import.meta.dirname, '../..')
const PACKAGES = { 'phaselock-state': 'packages/state', 'phaselock-repositories': 'packages/repositories' } as const

/** A Nest app as a user writes it: of each entry it uses something, in types and when it runs. */
const APP = `
import 'reflect-metadata'
import { EOL } from 'node:os'
import { Readable } from 'node:stream'
import { Inject, Injectable, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { MongoClient, type Db } from 'mongodb'
import { lifecycleOf, Replica } from 'phaselock'
import { PhaselockModule } from 'phaselock/nest'
import { SharedStore, StoreUnavailable, type SharedValues } from 'phaselock-state'
import { ConfigStore, defineConfig, InvalidConfig, type StandardSchema } from 'phaselock-state/config'
import { Logins, LoginFailed, type LoginProfile } from 'phaselock-state/logins'
import { LoginsHttpModule, StateModule } from 'phaselock-state/nest'
import { csv, importRows, rowLoop, type Row } from 'phaselock-state/rows'
import { embeddings, memory, repositories, type Embedder } from 'phaselock-repositories'

interface Mail { readonly host: string }
const schema: StandardSchema<Mail> = {
  '~standard': {
    version: 1,
    vendor: 'app',
    validate: (value) =>
      typeof (value as Mail | null)?.host === 'string' ? { value: value as Mail } : { issues: [{ message: 'expected a host' }] },
  },
}
const mail = defineConfig({ name: 'mail', schema, initial: { host: 'localhost' } })
const profile: LoginProfile = { name: 'crm', url: 'https://crm.example/token', token: 'token' }
const embedder: Embedder = { model: 'any', dimensions: 1, embed: async (texts) => texts.map((text) => [text.length]) }

const client = await new MongoClient(process.env['MONGODB_URI']!).connect()
const db: Db = client.db()
const orders = lifecycleOf<{ _id: string; session: string }>().define({
  name: 'order',
  collection: 'Order',
  phases: { New: { next: ['Done'] }, Done: { rest: true } },
})

@Injectable()
class Mailer {
  readonly scenarios: SharedValues<{ steps: string[] }>
  constructor(
    @Inject(SharedStore) store: SharedStore,
    @Inject(ConfigStore) readonly config: ConfigStore,
    @Inject(Logins) readonly logins: Logins,
  ) {
    this.scenarios = store.of<{ steps: string[] }>('scenario', { ttl: '24h' })
  }
}

const repos = repositories({ db, store: memory(), embeddings: embeddings(embedder) })
const bound = orders.handle({
  New: async (doc, step) => {
    await app.get(Mailer).scenarios.set(doc.session, { steps: ['greet'] })
    return step.moveTo('Done')
  },
})

@Module({
  imports: [
    StateModule.forRootAsync({
      useFactory: () => {
        const store = new SharedStore({ client: db })
        return { store, config: new ConfigStore({ db, configs: [mail] }), logins: new Logins({ db, store }) }
      },
    }),
    LoginsHttpModule.forRoot({ logins: new Logins({ db, store: new SharedStore({ client: db }) }), by: () => undefined }),
    ScheduleModule.forRoot(),
    PhaselockModule.forRoot({ db, lifecycles: [bound, ...repos.lifecycles] }),
  ],
  providers: [Mailer],
})
class App {}

const app = await NestFactory.createApplicationContext(App, { logger: false, abortOnError: false })
const mailer = app.get(Mailer)
const host: string = mailer.config.get(mail).host
const refused: unknown = await mailer.config.set(mail, {}, { by: 'ana', reason: 'a mistake' }).catch((error: unknown) => error)
await bound.insert({ _id: 'o1', session: 's1' })
do await app.get(Replica).runOnce()
while ((await bound.find('o1'))?.phase !== 'Done')
await importRows(db, 'orders', csv(() => Readable.from(['id;price', '1;7'].join(EOL)), { delimiter: ';' }), { by: 'ana' })
const loop = rowLoop({ db, store: app.get(SharedStore), session: 's1' })
await loop.begin('orders')
const rows: Row[] = []
for await (const { row } of loop.rows()) rows.push(row)
const unknown: unknown = await mailer.logins.context(profile.name).catch((error: unknown) => error)
console.log(JSON.stringify({
  ...{ host, refused: refused instanceof InvalidConfig, scenario: await mailer.scenarios.get('s1') },
  ...{ rows, login: (unknown as Error).name },
  classes: [StoreUnavailable.name, LoginFailed.name],
  lifecycles: await db.collection<{ _id: string }>('phaselock.lifecycles').distinct('_id'),
}))
await app.close()
await client.close()
`

describe('phaselock-state and phaselock-repositories from their tarballs, in an empty Nest app', () => {
  const database = useDatabase()
  let folder: InstalledFolder

  beforeAll(async () => {
    folder = await InstalledFolder.make()
    await folder.install('phaselock', '.')
    for (const [name, from] of Object.entries(PACKAGES)) await folder.install(name, from)
    await writeFile(join(folder.path, 'package.json'), JSON.stringify({ name: 'app', private: true, type: 'module' }))
  })
  afterAll(() => folder.remove())

  test('every entry can be imported, by import() and, as Node can, by require()', async () => {
    const entries: string[] = []
    for (const [name, from] of Object.entries(PACKAGES)) {
      const { exports } = JSON.parse(await readFile(join(root, from, 'package.json'), 'utf8'))
      entries.push(...Object.keys(exports).map((entry) => name + entry.slice(1)))
    }
    expect(entries).toEqual(
      expect.arrayContaining([
        ...['', '/logins', '/config', '/rows', '/nest', '/cli'].map((entry) => `phaselock-state${entry}`),
        ...['', '/cli'].map((entry) => `phaselock-repositories${entry}`),
      ]),
    )
    const modules = entries.filter((entry) => !entry.endsWith('.json'))
    const listed = `const count = (module) => Object.keys(module).filter((name) => module[name] !== undefined).length\n`
    const imported = `${listed}for (const name of ${JSON.stringify(modules)}) console.log(name, count(await import(name)) > 0)`
    const required = `${listed}for (const name of ${JSON.stringify(modules)}) console.log(name, count(require(name)) > 0)`
    for (const [type, program] of [
      ['module', imported],
      ['commonjs', required],
    ]) {
      const args = ['--disable-warning=ExperimentalWarning', `--input-type=${type}`, '-e', program!]
      const { stdout } = await run(process.execPath, args, { cwd: folder.path })
      expect(stdout).toBe(modules.map((name) => `${name} true\n`).join(''))
    }
  })

  test('an app with StateModule and PhaselockModule compiles against their types, boots, works and closes', async () => {
    const compilerOptions = {
      ...{ target: 'es2023', module: 'nodenext', moduleResolution: 'nodenext', types: ['node'], strict: true },
      ...{
        exactOptionalPropertyTypes: true,
        skipLibCheck: true,
        experimentalDecorators: true,
        outDir: 'out',
        rootDir: '.',
      },
    }
    await writeFile(join(folder.path, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['app.ts'] }))
    await writeFile(join(folder.path, 'app.ts'), APP)
    const tsc = [join(root, 'node_modules/typescript/bin/tsc'), '-p', folder.path, '--pretty', 'false']
    const { stdout: problems } = await run(process.execPath, tsc).catch((error: { stdout: string }) => error)
    expect(problems).toBe('')
    const { PATH, HOME } = process.env
    const PHASELOCK_STATE_KEYS = `k1=${randomBytes(32).toString('base64')}`
    const env = { PATH, HOME, MONGODB_URI: database.uri, PHASELOCK_STATE_KEYS }
    const { stdout } = await run(process.execPath, ['out/app.js'], { cwd: folder.path, env })
    expect(JSON.parse(stdout)).toEqual({
      host: 'localhost',
      refused: true,
      scenario: { steps: ['greet'] },
      rows: [{ id: '1', price: '7' }],
      login: 'NotFound',
      classes: ['StoreUnavailable', 'LoginFailed'],
      lifecycles: expect.arrayContaining(['order', 'repository', 'repository-sync']),
    })
  })
})
