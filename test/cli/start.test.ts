import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, jest, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { consoleToLog } from '../../src/cli/start/console-lines.js'
import { pasteLines } from '../../src/cli/start/paste-lines.js'
import { silentLogger } from '../../src/index.js'
import { apiGatewayLifecycles } from '../../src/tasks/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { MAIN, ROOT, type Running, THINGS, useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

const uriOf = async (replica: Running) => (await replica.printed(/^ {2}mongodb +(\S+)$/m))[1]!
const identityOf = async (replica: Running) => (await replica.printed(/^ {2}replica +(\S+)$/m))[1]!
const commandsOf = async (replica: Running) => (await replica.printed(/^ {2}(npx phaselock add .*)$/m))[1]!

describe('phaselock start in a fresh folder', () => {
  const folder = useCliFolder()

  test('tells where everything is; the printed line inserts and lists; moves are logged; a second one joins; both stop in order', async () => {
    const here = folder()
    await here.linkPackages()
    const first = here.phaselock(['start', '--lifecycles', 'phaselock/tasks'])
    const uri = await uriOf(first)
    await first.printed(/^ {2}data +\S+\/\.phaselock\/db /m)
    await access(join(here.path, '.phaselock/db'))
    expect(first.err).toMatch(/"msg":"single: MONGODB_URI is not set, so only processes of this machine share \S+\/db"/)

    // In this repository the package isn't installed, so npx doesn't find it.
    const commands = (await commandsOf(first)).replaceAll('npx phaselock', `'${process.execPath}' ${MAIN}`)
    const pasted = here.start('/bin/sh', ['-c', commands])
    expect(await pasted.exited).toBe(0)
    expect(pasted.out).toMatch(/^[0-9a-f]{24} {2}\w+/m)
    await first.printed(/"msg":"api-gateway [0-9a-f]{24}: Creating -> Created"/, 'err')

    const second = here.phaselock(['start', '--name', 'api-2'], { PHASELOCK_LIFECYCLES: 'phaselock/tasks' })
    expect(await uriOf(second)).toBe(uri)
    expect(await identityOf(second)).toMatch(/^api-2~/)
    const listed = await here.run(['list', 'api-gateway'])
    expect(listed).toMatchObject({ code: 0, err: '' })
    expect(listed.out).toMatch(/^[0-9a-f]{24} {2}Created/m)

    first.child.kill('SIGTERM')
    expect(await first.exited).toBe(0)
    expect(first.out).toMatch(/^stopped$/m)
    // By hand, and the other replica goes on alone.
    const client = await MongoClient.connect(uri)
    const gateways = client.db().collection<{ _id: string; phase: string }>('ApiGateway')
    await gateways.insertOne({ _id: 'by-hand', phase: 'Creating' })
    await eventually(async () => expect(await gateways.findOne({ _id: 'by-hand' })).toMatchObject({ phase: 'Created' }))
    await client.close()
    second.child.kill('SIGINT')
    expect(await second.exited).toBe(0)
  })
})

describe('phaselock start on a server', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const env = () => ({ MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS })

  /** A step that runs until the test says go. */
  async function withSlowStep(replica: Running): Promise<void> {
    await replica.printed(/is running/)
    await database.db.collection('Thing').insertOne({ phase: 'Creating', waitsForGo: true })
    await eventually(async () => (await database.db.collection('Began').countDocuments()) === 1)
  }

  test('--http: alive, ready, measured; 503 while it stops; a step within the grace is recorded', async () => {
    const args = ['start', '--http', '0', '--http-host', '127.0.0.1', '--log', 'json', '--grace', '1m']
    const replica = folder().phaselock(args, {
      ...env(),
      THING_LOCK_TIMEOUT: '9s', // shorter than the default: the connection's timeouts follow it
    })
    const [, url] = await replica.printed(/^ {2}http +(http:\S+)\/livez/m)
    expect((await fetch(`${url}/livez`)).status).toBe(200)
    expect((await fetch(`${url}/readyz`)).status).toBe(200)
    // The first census comes within seconds.
    await eventually(async () =>
      expect(await (await fetch(`${url}/metrics`)).text()).toMatch(
        /^phaselock_documents_due\{lifecycle="thing",phase="Creating"\} 0$/m,
      ),
    )
    await withSlowStep(replica)
    replica.child.kill('SIGTERM')
    const ready = await eventually(async () => {
      const response = await fetch(`${url}/readyz`)
      expect(response.status).toBe(503)
      return response
    })
    expect(await ready.json()).toMatchObject({ error: { replica: { reasons: ['stopping'] } } })
    await database.db.collection('Go').insertOne({})
    expect(await replica.exited).toBe(0)
    expect(await database.db.collection('Thing').findOne()).toMatchObject({ phase: 'Created' })
    for (const line of replica.err.trim().split('\n')) expect(JSON.parse(line)).toHaveProperty('level')
    // Lines that work as they stand.
    expect(replica.out).toMatch(/^ {2}npx phaselock add thing && npx phaselock list thing$/m)
    const [, added] = (await folder().run(['add', 'thing'], { MONGODB_URI: database.uri })).out.split(' ')
    expect((await folder().run(['list', 'thing'], { MONGODB_URI: database.uri })).out).toContain(added)
  })

  test('a second SIGINT exits at once with 130; the same one coming twice, as under npm, does not', async () => {
    const replica = folder().phaselock(['start', '--grace', '1m'], env())
    await withSlowStep(replica)
    replica.child.kill('SIGINT')
    await replica.printed(/SIGINT: no more claims/, 'err')
    replica.child.kill('SIGINT')
    replica.child.kill('SIGINT')
    await eventually(() => {
      replica.child.kill('SIGINT')
      return replica.child.exitCode !== null
    })
    expect(await replica.exited).toBe(130)
    expect(replica.err).toMatch(/second SIGINT: exiting at once/)
    expect(replica.out).not.toMatch(/^stopped$/m)
  })

  test('--json: one object on standard output, log lines on standard error', async () => {
    const replica = folder().phaselock(['start', '--json', '--name', 'w1'], env())
    await replica.printed(/\}\n$/)
    expect(JSON.parse(replica.out)).toMatchObject({
      identity: expect.stringMatching(/^w1~/),
      database: database.db.databaseName,
      source: 'uri',
      data: null,
      lifecycles: ['thing'],
      http: null,
    })
    replica.child.kill('SIGTERM')
    expect(await replica.exited).toBe(0)
    expect(replica.out.trim().split('\n')).toHaveLength(1)
    expect(replica.err.match(/"msg":"distributed: .*?"/g)).toEqual(['"msg":"distributed: MONGODB_URI is set"'])
  })

  test('one line says the mode and why, with workers too', async () => {
    const args = ['start', '--workers', '2', '--uri', database.uri]
    const replica = folder().phaselock(args, { PHASELOCK_LIFECYCLES: THINGS, PHASELOCK_MODE: 'single' })
    await replica.printed(/is running/)
    replica.child.kill('SIGTERM')
    expect(await replica.exited).toBe(0)
    expect(replica.err.match(/"msg":"distributed: .*?"/g)).toEqual([
      '"msg":"distributed: --uri is given; named locks in memory, by PHASELOCK_MODE"',
    ])
  })
})

describe('npm start', () => {
  const folder = useCliFolder()

  test('a second one joins the first one’s database; SIGTERM to npm stops each in order', async () => {
    const npmStart = () => folder().start('npm', ['start'], { PHASELOCK_DATA_DIR: folder().path }, ROOT)
    const first = npmStart()
    const uri = await uriOf(first)
    const second = npmStart()
    expect(await uriOf(second)).toBe(uri)
    expect(await identityOf(second)).not.toBe(await identityOf(first))
    await first.printed(/^ {2}lifecycles +api-gateway \(ApiGateway\), /m)
    for (const npm of [first, second]) {
      npm.child.kill('SIGTERM')
      await npm.exited
      expect(npm.out).toMatch(/^stopped$/m)
    }
  })
})

describe('what libraries write on the console', () => {
  test('becomes log lines', () => {
    const lines: string[] = []
    const logger = { ...silentLogger, warn: (message: string) => void lines.push(message) }
    const target: Partial<Console> = {}
    consoleToLog(logger, target)
    target.warn?.('missed by %d ms', 7)
    expect(lines).toEqual(['missed by 7 ms'])
  })
})

describe('the lines to paste', () => {
  const database = useDatabase()

  test('a connection string with a password is taken from the environment', () => {
    const { model } = apiGatewayLifecycles({ db: database.db }).gateway
    const lines = pasteLines({ uri: 'mongodb://me:secret@h/x', db: database.db }, model)
    expect(JSON.stringify(lines)).not.toContain('secret')
    expect(lines.mongosh).toBe('mongosh "$MONGODB_URI"')
  })

  test("mongosh's lines insert into the right collection and show what is in it", () => {
    const { model } = apiGatewayLifecycles({ db: database.db }).gateway
    const { inMongosh, mongosh } = pasteLines({ uri: database.uri, db: database.db }, model)
    const documents = `db.getSiblingDB("${database.db.databaseName}").getCollection("ApiGateway")`
    expect(inMongosh).toEqual([`${documents}.insertOne({ phase: "Creating" })`, `${documents}.find()`])
    expect(mongosh).toBe(`mongosh '${database.uri}'`)
  })
})
