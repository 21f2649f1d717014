/**
 * A program: the keeper of one local database. A replica starts it, detached, with a `KeeperJob`. It holds the folder's lock, starts the
 * engine on the folder's port, and then counts the replicas. Each holds one connection to it for as long as it lives, and the
 * kernel closes that when the replica dies, however it dies. Without replicas it ends the engine and itself.
 * If the engine dies the keeper ends too: the replicas notice, and one of them starts both again.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { fstatSync, ftruncateSync, rmSync, writeSync } from 'node:fs'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { createInterface } from 'node:readline'
import { timeText } from '../time.js'
import { type EngineProcess, EngineStartFailed, endEngine, startEngineProcess } from './engine-process.js'
import { type EngineFolder, openEngineFolder } from './folder.js'
import type { KeeperJob, KeeperReport, Welcome } from './keeper-job.js'
import { type KeeperLock, takeKeeperLock } from './keeper-lock.js'
import { isPortFree, portGetsFree, portsFor } from './port.js'
import { identify } from './process-identity.js'
import { type EngineState, readState, writeState } from './state.js'

/** Without a replica for this long, the keeper ends; with STOP_PATIENCE_MS everything is over within 5 s. */
const LINGER_MS = 1_000
const STOP_PATIENCE_MS = 3_000
/** The replica that started the keeper has this long to join it. */
const FIRST_REPLICA_MS = 10_000
const READY_WITHIN_MS = 60_000
const LEFTOVER_PATIENCE_MS = 5_000
const SAME_PORT_PATIENCE_MS = 15_000
const MAX_LOG_BYTES = 1024 * 1024
const REPORT_PIPE = 3

class Keeper {
  private readonly secret = randomBytes(16).toString('hex')
  private readonly replicas = new Set<Socket>()
  private engine: EngineProcess | undefined
  private port = 0
  private ending = false
  private idle: NodeJS.Timeout | undefined

  constructor(
    private readonly job: KeeperJob,
    private readonly folder: EngineFolder,
    private readonly lock: KeeperLock,
  ) {}

  async run(): Promise<void> {
    const before = readState(this.folder)
    if (before?.engine) await endEngine(before.engine, LEFTOVER_PATIENCE_MS)
    this.engine = await this.startEngine(before)
    const control = await this.listen()
    writeState(this.folder, this.state({ controlPort: (control.address() as AddressInfo).port }))
    report({ kind: 'ready' })
    log(`ready on port ${this.port}`)
    process.on('SIGTERM', () => void this.end('SIGTERM')).on('SIGINT', () => void this.end('SIGINT'))
    this.waitForReplicas(FIRST_REPLICA_MS)
    const how = await this.engine.exited
    if (!this.ending) await this.end(`the engine ${how}`)
  }

  /** Uses the previous port or, unless running clients depend on that one, another. */
  private async startEngine(before: EngineState | undefined): Promise<EngineProcess> {
    const kept = before?.port
    if (this.job.samePort && kept !== undefined) {
      if (!(await portGetsFree(kept, SAME_PORT_PATIENCE_MS))) {
        throw new EngineStartFailed(`port ${kept}, which running clients use, is taken by another program`, '', true)
      }
      return await this.startOn(kept)
    }
    for (const port of kept === undefined ? portsFor(this.folder.root) : [kept, ...portsFor(this.folder.root)]) {
      if (!(await isPortFree(port))) continue
      try {
        return await this.startOn(port)
      } catch (error) {
        if (!(error instanceof EngineStartFailed && error.portTaken)) throw error
      }
    }
    throw new EngineStartFailed('no free port on 127.0.0.1', '', true)
  }

  private async startOn(port: number): Promise<EngineProcess> {
    log(`starting ${this.job.server.command} ${this.job.server.args.join(' ')} on port ${port}`)
    this.port = port
    return await startEngineProcess(this.job.server, { data: this.folder.data, port }, log, READY_WITHIN_MS)
  }

  private listen(): Promise<Server> {
    return new Promise((resolve, reject) => {
      const server = createServer((socket) => this.admit(socket)).once('error', reject)
      server.listen({ host: '127.0.0.1', port: 0 }, () => resolve(server))
    })
  }

  /** Admits a connection once it has sent the secret; one that sends none within 2 s is dropped. */
  private admit(socket: Socket): void {
    socket.on('error', () => undefined)
    const stranger = setTimeout(() => socket.destroy(), 2_000)
    createInterface({ input: socket }).once('line', (line) => {
      clearTimeout(stranger)
      const shown = Buffer.from(line)
      const secret = Buffer.from(this.secret)
      if (this.ending || shown.length !== secret.length || !timingSafeEqual(shown, secret)) {
        socket.destroy()
        return
      }
      this.replicas.add(socket)
      clearTimeout(this.idle)
      const { port, job, engine } = this
      const welcome: Welcome = { port, source: job.source, keeperPid: process.pid, enginePid: engine!.identity.pid }
      socket.write(`${JSON.stringify(welcome)}\n`)
    })
    socket.on('close', () => {
      clearTimeout(stranger)
      if (this.replicas.delete(socket) && this.replicas.size === 0) this.waitForReplicas(LINGER_MS)
    })
  }

  private waitForReplicas(ms: number): void {
    clearTimeout(this.idle)
    this.idle = setTimeout(() => void this.end('no replica is left'), ms)
  }

  private async end(why: string): Promise<void> {
    if (this.ending) return
    this.ending = true
    log(`ending: ${why}`)
    clearTimeout(this.idle)
    await this.engine?.stop(STOP_PATIENCE_MS)
    writeState(this.folder, { port: this.port, source: this.job.source })
    this.lock.release()
    if (this.job.temporary) rmSync(this.folder.root, { recursive: true, force: true, maxRetries: 20 })
    process.exit(0)
  }

  private state({ controlPort }: { controlPort: number }): EngineState {
    const self = identify(process.pid)
    return {
      port: this.port,
      source: this.job.source,
      engine: this.engine?.identity,
      ...(self && { keeper: { process: self, controlPort, secret: this.secret } }),
    }
  }
}

/** Writes to the log: our standard output, a file opened for appending, which is truncated once it has grown too long. */
function log(line: string): void {
  try {
    if (fstatSync(1).size > MAX_LOG_BYTES) ftruncateSync(1, 0)
    writeSync(1, line.startsWith('{') ? `${line}\n` : `${timeText()} keeper ${process.pid}: ${line}\n`)
  } catch {} // a full disk must not end the database
}

function report(what: KeeperReport): void {
  try {
    writeSync(REPORT_PIPE, `${JSON.stringify(what)}\n`)
  } catch {} // the replica that started us is gone
}

async function main(): Promise<void> {
  let lock: KeeperLock | undefined
  try {
    const job = JSON.parse(process.argv[2] ?? 'null') as KeeperJob
    const folder = await openEngineFolder(job.root)
    lock = takeKeeperLock(folder)
    if (lock) await new Keeper(job, folder, lock).run()
    else report({ kind: 'busy' })
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error)
    log(`failed: ${said}`)
    lock?.release()
    report({ kind: 'failed', said })
    process.exit(1)
  }
}

await main()
