import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals'
import { storeConfig, storedConfig } from '../../packages/state/src/config/versions.js'
import { codeBlocks, readPage } from '../docs/page.js'
import { useDatabase } from '../support/database.js'
import { InstalledFolder, run } from './installed-folder.js'

jest.setTimeout(120_000)

/** What the examples of docs/state.md take for granted. */
const PRELUDE = `
export {}
declare global {
  type Db = import('mongodb').Db
  const db: Db
  const DB: symbol
  const SharedStore: typeof import('phaselock-state').SharedStore
  const ConfigStore: typeof import('phaselock-state/config').ConfigStore
  const Logins: typeof import('phaselock-state/logins').Logins
  const StateModule: typeof import('phaselock-state/nest').StateModule
  const mail: import('phaselock-state/config').ConfigDefinition<{ host: string }>
  const imports: typeof import('./imports.js').imports
  const password: string
  const session: string
  function logIn(options: { signal: AbortSignal }): Promise<string>
  function send(row: unknown): Promise<void>
  interface Scenario { readonly steps: readonly string[] }
}
`

const IMPORTS = `
import { lifecycleOf } from 'phaselock'
export const imports = lifecycleOf<{ _id: string }>().define({
  name: 'import',
  collection: 'Import',
  phases: { Running: { next: ['Done'] }, Done: { rest: true } },
})
`

/** The part of zod that the page uses, by the interface of Standard Schema 1 as it is published. */
const ZOD = {
  'package.json': JSON.stringify({ name: 'zod', type: 'module', exports: { types: './z.d.ts', default: './z.js' } }),
  'z.d.ts': `
    interface StandardSchemaV1<Input = unknown, Output = Input> { readonly '~standard': Props<Input, Output> }
    interface Props<Input, Output> {
      readonly version: 1
      readonly vendor: string
      readonly validate: (value: unknown) => Result<Output> | Promise<Result<Output>>
      readonly types?: { readonly input: Input; readonly output: Output } | undefined
    }
    type Result<Output> = { readonly value: Output; readonly issues?: undefined } | { readonly issues: ReadonlyArray<Issue> }
    interface Issue { readonly message: string; readonly path?: ReadonlyArray<PropertyKey | { readonly key: PropertyKey }> | undefined }
    type OutputOf<S> = S extends StandardSchemaV1<any, infer O> ? O : never
    export const z: {
      string(): StandardSchemaV1<string>
      number(): StandardSchemaV1<number> & { default(value: number): StandardSchemaV1<number | undefined, number> }
      object<S extends object>(shape: S): StandardSchemaV1<unknown, { [K in keyof S]: OutputOf<S[K]> }>
    }`,
  'z.js': `
    const schema = (validate) => ({ '~standard': { version: 1, vendor: 'zod', validate } })
    const of = (type) => (value) => typeof value === type ? { value } : { issues: [{ message: 'expected a ' + type, path: [] }] }
    const withDefault = (validate) => Object.assign(schema(validate), {
      default: (fallback) => schema((value) => validate(value === undefined ? fallback : value)),
    })
    const object = (shape) => schema((value) => {
      const read = Object.entries(shape).map(([key, one]) => [key, one['~standard'].validate(value?.[key])])
      const issues = read.flatMap(([key, { issues = [] }]) => issues.map((issue) => ({ ...issue, path: [key] })))
      return issues.length > 0 ? { issues } : { value: Object.fromEntries(read.map(([key, one]) => [key, one.value])) }
    })
    export const z = { string: () => schema(of('string')), number: () => withDefault(of('number')), object }`,
}

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

  /** What the compiler has against these files of the folder. @param options further ones */
  async function compiled(include: readonly string[], options: object = {}): Promise<string> {
    const compilerOptions = {
      ...{ target: 'es2023', module: 'nodenext', moduleResolution: 'nodenext', types: ['node'], strict: true },
      ...{ exactOptionalPropertyTypes: true, skipLibCheck: true, experimentalDecorators: true },
      ...{ outDir: 'out', rootDir: '.', ...options },
    }
    await writeFile(join(folder.path, 'tsconfig.json'), JSON.stringify({ compilerOptions, include }))
    const tsc = [join(root, 'node_modules/typescript/bin/tsc'), '-p', folder.path, '--pretty', 'false']
    return (await run(process.execPath, tsc).catch((error: { stdout: string }) => error)).stdout
  }

  /** What a program of the folder prints. */
  async function printed(file: string): Promise<string> {
    const { PATH, HOME } = process.env
    const PHASELOCK_STATE_KEYS = `k1=${randomBytes(32).toString('base64')}`
    const env = { PATH, HOME, MONGODB_URI: database.uri, PHASELOCK_STATE_KEYS }
    return (await run(process.execPath, [file], { cwd: folder.path, env })).stdout
  }

  test('an app with StateModule and PhaselockModule compiles against their types, boots, works and closes', async () => {
    await writeFile(join(folder.path, 'app.ts'), APP)
    expect(await compiled(['app.ts'])).toBe('')
    expect(JSON.parse(await printed('out/app.js'))).toEqual({
      host: 'localhost',
      refused: true,
      scenario: { steps: ['greet'] },
      rows: [{ id: '1', price: '7' }],
      login: 'NotFound',
      classes: ['StoreUnavailable', 'LoginFailed'],
      lifecycles: expect.arrayContaining(['order', 'repository', 'repository-sync']),
    })
  })

  test('the examples of docs/state.md compile, and the one with zod runs on any library of Standard Schema', async () => {
    const zod = join(folder.path, 'node_modules/zod')
    await mkdir(zod, { recursive: true })
    for (const [name, text] of Object.entries(ZOD)) await writeFile(join(zod, name), text)
    await writeFile(join(folder.path, 'prelude.d.ts'), PRELUDE)
    await writeFile(join(folder.path, 'imports.ts'), IMPORTS)
    const blocks = codeBlocks(await readPage('docs/state.md')).filter(({ language }) => language === 'ts')
    expect(blocks.length).toBeGreaterThanOrEqual(5)
    for (const [i, { code }] of blocks.entries())
      await writeFile(join(folder.path, `block-${i}.ts`), `${code}\nexport {}`)
    const found = await compiled(['prelude.d.ts', 'imports.ts', 'block-*.ts'], { noImplicitAny: false })
    expect(found).toBe('')

    // The example changes version 3.
    const place = { db: database.db, environment: 'default' }
    for (const host of ['a', 'b', 'c']) await storeConfig(place, 'mail', { host }, { by: 'bo' })
    const example = blocks.findIndex(({ heading }) => heading === 'Config')
    const seen = [`console.log(JSON.stringify(config.get(mail)))`, 'await config.stop()', 'await client.close()']
    const js = await readFile(join(folder.path, `out/block-${example}.js`), 'utf8')
    const opened = `const { MongoClient } = await import('mongodb')
      const client = new MongoClient(process.env.MONGODB_URI)
      const db = client.db()`
    await writeFile(join(folder.path, 'out/example.js'), [opened, js, ...seen].join('\n'))
    expect(JSON.parse(await printed('out/example.js'))).toEqual({ host: 'smtp.example.org', port: 587 })
    expect(await storedConfig(place, 'mail')).toMatchObject({ version: 4, by: 'ana', reason: 'the new relay' })
  })
})
