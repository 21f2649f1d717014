import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { identify } from '../../packages/local-database/src/engine/process-identity.js'
import { DataDirUnusable, NotEnoughSpace } from '../../packages/local-database/src/index.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { eventually } from '../support/database.js'
import { isAlive, useLocalDatabase } from '../support/database-local.js'

const local = useLocalDatabase()

describe('a local database', () => {
  it('finds everything again after a restart, on the same port', async () => {
    const first = await local().connect()
    await first.db.collection('a').insertOne({ kept: true })
    const { port, keeper } = await local().pids()
    await first.close()
    await eventually(() => expect(isAlive(keeper)).toBe(false))
    expect(readdirSync(local().dataDir).filter((name) => name.endsWith('.tmp') || name.endsWith('.draft'))).toEqual([])
    const second = await local().connect()
    expect(await second.db.collection('a').countDocuments({ kept: true })).toBe(1)
    expect((await local().pids()).port).toBe(port)
  })

  it('is joined by a second replica, which keeps it when the first leaves', async () => {
    const first = await local().connect()
    await first.db.collection('a').insertOne({ shared: true })
    const before = await local().pids()
    const second = await local().replica()
    expect(second.uri).toBe(first.uri)
    expect(second.source).toBe('embedded')
    expect(await local().pids()).toEqual(before)
    const third = await local().connect()
    await first.close()
    expect(await third.db.collection('a').countDocuments()).toBe(1)
  })

  it('starts one engine only for replicas that start at once', async () => {
    const replicas = await Promise.all([local().replica(), local().replica(), local().replica(), local().connect()])
    expect(new Set(replicas.map(({ uri }) => uri)).size).toBe(1)
    const log = await readFile(join(local().dataDir, 'engine.log'), 'utf8')
    expect(log.match(/Waiting for connections/g)).toHaveLength(1)
  })

  it('ends soon after the last replica was killed with kill -9 (within 5 s where nothing else runs), and not before', async () => {
    const [first, second] = [await local().replica(), await local().replica()]
    const { keeper, engine } = await local().pids()
    first.process.kill('SIGKILL')
    await once(first.process, 'exit')
    await sleep(2_000) // nothing may happen now: longer than a keeper without replicas waits
    expect([isAlive(keeper), isAlive(engine)]).toEqual([true, true])
    second.process.kill('SIGKILL')
    await eventually(() => expect([isAlive(keeper), isAlive(engine)]).toEqual([false, false]))
  })

  it('leaves no engine behind when its keeper and all replicas are killed together', async () => {
    const replica = await local().replica()
    const { keeper, engine } = await local().pids()
    replica.process.kill('SIGKILL')
    process.kill(keeper, 'SIGKILL')
    await eventually(() => expect(isAlive(engine)).toBe(false))
  })

  it('is started again by another replica while the one that started it is paused', async () => {
    const starter = await local().replica()
    const here = await local().connect()
    const before = await local().pids()
    starter.process.kill('SIGSTOP') // its dead child stays a zombie until it goes on
    process.kill(before.keeper, 'SIGKILL')
    await eventually(async () => expect((await local().pids()).keeper).not.toBe(before.keeper), { timeoutMs: 60_000 })
    await eventually(async () => expect(await here.db.command({ ping: 1 })).toMatchObject({ ok: 1 }))
    expect((await local().pids()).port).toBe(before.port)
    starter.process.kill('SIGCONT')
    await eventually(() => expect(starter.logged.join('\n')).toContain('is back'))
  })

  it.each(['engine', 'keeper'] as const)('is started again on the same port when its %s is killed', async (victim) => {
    const here = await local().connect()
    const other = await local().replica()
    await here.db.collection('a').insertOne({ durable: 1 })
    const before = await local().pids()
    process.kill(before[victim], 'SIGKILL')
    await eventually(async () => expect((await local().pids()).keeper).not.toBe(before.keeper), { timeoutMs: 60_000 })
    await eventually(async () => expect(await here.db.collection('a').countDocuments()).toBe(1), { timeoutMs: 60_000 })
    const after = await local().pids()
    expect(after.port).toBe(before.port)
    // Whoever started them may not have noticed yet that they are dead.
    await eventually(() => expect([isAlive(before.keeper), isAlive(before.engine)]).toEqual([false, false]))
    await eventually(() =>
      expect([...local().logged, ...other.logged].join('\n')).toMatch(/"startedHere":true|is back/),
    )
    await here.close()
    expect(isAlive(other.process.pid!)).toBe(true)
    expect(isAlive(after.engine)).toBe(true)
  })

  it('is not taken for running by stale state: a dead or foreign process, a port of somebody else, a broken file', async () => {
    const first = await local().connect()
    const state = await local().state()
    await first.close()
    await eventually(() => expect(isAlive(state.keeper!.process.pid)).toBe(false))
    const stranger = createServer((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')).listen(
      state.port,
      '127.0.0.1',
    )
    await once(stranger, 'listening')
    const self = { pid: process.pid, started: '1' }
    const stale = { ...state, engine: self, keeper: { ...state.keeper!, process: self, controlPort: state.port } }
    await writeFile(join(local().dataDir, 'engine.json'), JSON.stringify(stale))
    const second = await local().connect()
    expect((await local().pids()).port).not.toBe(state.port)
    const { keeper } = await local().pids()
    await second.close()
    await eventually(() => expect(isAlive(keeper)).toBe(false))
    await writeFile(join(local().dataDir, 'engine.json'), '{ "port": ')
    expect((await local().connect()).source).toBe('embedded')
    stranger.close()
  })

  it('leaves a process alone that has got the id, and the moment of its start, of an engine of before a reboot', async () => {
    const first = await local().connect()
    await first.close()
    await eventually(async () => expect((await local().state()).keeper).toBeUndefined())
    const innocent = spawn('sleep', ['60'], { stdio: 'ignore' })
    try {
      await once(innocent, 'spawn')
      const engine = { ...identify(innocent.pid!), boot: 'another one' }
      const state = { ...(await local().state()), engine }
      await writeFile(join(local().dataDir, 'engine.json'), JSON.stringify(state))
      await local().connect()
      expect((await local().pids()).engine).not.toBe(innocent.pid)
      expect([innocent.exitCode, innocent.signalCode]).toEqual([null, null])
    } finally {
      innocent.kill()
    }
  })

  it('shuts the door to those who do not know its secret, and keeps its files to its owner', async () => {
    await local().connect()
    const { controlPort } = (await local().state()).keeper!
    const stranger = connect(controlPort, '127.0.0.1').on('error', () => undefined)
    const heard: unknown[] = []
    stranger.on('data', (data) => heard.push(data)).write(`${'0'.repeat(32)}\n`)
    await once(stranger, 'close')
    expect(heard).toEqual([])
    expect(statSync(join(local().dataDir, 'engine.json')).mode & 0o077).toBe(0)
    expect(statSync(local().dataDir).mode & 0o077).toBe(0)
    expect(existsSync(join(local().dataDir, '.gitignore'))).toBe(true)
  })

  it('of the embedded engine refuses what would crash it, and waits for new entries instead of spinning', async () => {
    const { client, db, uri } = await local().connect()
    for (const command of ['startSession', 'refreshSessions', 'endSessions', 'killSessions', 'killAllSessions']) {
      await expect(client.db('admin').command({ [command]: 1 })).rejects.toMatchObject({ code: 59 })
    }
    const log = await db.createCollection('log', { capped: true, size: 4096 })
    await log.insertOne({ n: 1 })
    const looks: string[] = []
    const watched = new MongoClient(uri, { monitorCommands: true })
    watched.on('commandStarted', ({ commandName }) => looks.push(commandName))
    const follower = watched
      .db(db.databaseName)
      .collection('log')
      .find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 500 })
    await follower.next()
    const start = systemClock.monotonicMs()
    expect(await follower.tryNext()).toBeNull()
    expect(systemClock.monotonicMs() - start).toBeGreaterThan(400)
    expect(looks.filter((name) => name === 'getMore').length).toBeLessThanOrEqual(2)
    await follower.close()
    await watched.close()
  })

  it('says which folder it can not use', async () => {
    await writeFile(local().dataDir, 'a file')
    const error = await local()
      .connect()
      .catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(DataDirUnusable)
    expect(String(error)).toContain(`expected a writable folder at ${local().dataDir}, got`)
    await rm(local().dataDir)
  })

  it('needs room for its first start, and says how much and where', async () => {
    const firstStartBytes = 2 ** 60
    const refused = await local()
      .connect({ firstStartBytes })
      .catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(NotEnoughSpace)
    const { message } = refused as Error
    expect(message).toContain(
      `expected ${2 ** 40} MB of free space for a new database in ${join(local().dataDir, 'db')}`,
    )
    expect(message).toMatch(
      /got \d+ MB; free some, choose a folder on another disk \(dataDir, PHASELOCK_DATA_DIR, --data-dir\)/,
    )
    expect(local().logged).toEqual([])
    await (await local().connect()).close()
    await local().connect({ firstStartBytes }) // what is there needs no more
  })

  it('keeps no stream of the replica open, and starts its log again when it has grown beyond 1 MB', async () => {
    const log = join(local().dataDir, 'engine.log')
    await (await local().connect()).close()
    await eventually(async () => expect((await local().state()).keeper).toBeUndefined())
    await writeFile(log, 'x'.repeat(1_100_000))
    const replica = await local().replica()
    expect(statSync(log).size).toBeLessThan(100_000)
    await local().connect() // so that the keeper goes on
    const { keeper, engine } = await local().pids()
    replica.process.kill('SIGKILL')
    await once(replica.process, 'close') // all ends of its pipes are closed, while the keeper still runs
    expect([isAlive(keeper), isAlive(engine)]).toEqual([true, true])
  })
})
