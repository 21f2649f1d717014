import { readdirSync } from 'node:fs'
import { monotonicMs, sleep } from '../time.js'
import type { ServerCommand } from './engine-process.js'
import type { EngineFolder } from './folder.js'
import { joinKeeper, type KeeperLink } from './keeper-link.js'
import { keeperLockHolder } from './keeper-lock.js'
import { launchKeeper } from './launch.js'
import { type LocalSource, readState } from './state.js'

/** One way to get a server on this machine. */
export interface LocalServer {
  source: LocalSource
  /** A name for messages: 'mongod on PATH'. */
  name: string
  /**
   * Finds it (or fetches it) and returns the commands to start it, the best one first.
   * @throws Error with a message for users that explains why there is no such server
   */
  commands(): Promise<ServerCommand[]>
}

/** Thrown by `commands` if there is no such server here: listed if all fail, but not worth a line in the log. */
export class NotHere extends Error {
  override readonly name = 'NotHere'
}

/** An attempt to start a server, and its report. */
export interface LocalAttempt {
  name: string
  said: string
}

export interface OpenEngineOptions {
  servers: LocalServer[]
  /** True for a restart for running clients: only the port that they know is acceptable. */
  samePort?: boolean
  temporary?: boolean
  /** Called before a server is started. */
  starting?: (server: LocalServer) => void
  /** Called for a server that exists but doesn't work. */
  failed?: (attempt: LocalAttempt) => void
}

/** The link to the folder's engine, joined or started; or, if nothing starts, the attempts. */
export type OpenedEngine = { link: KeeperLink; started: boolean } | { tried: LocalAttempt[] }

const JOIN_POLL_MS = 30
/** More than a keeper may take to end a leftover engine, wait for its port and start (80 s). */
const STUCK_MS = 90_000

/**
 * Joins the engine of a folder, or starts one: from the source that has written its data, else from the first server that works.
 * If that source fails no other is tried, so that a temporary failure of an engine causes no download, and no other kind of server
 * gets access to its files. Only a source that no longer exists is replaced. Any number of processes may do this concurrently: only one
 * keeper gets the folder's lock, and the others join it.
 */
export async function openEngine(folder: EngineFolder, options: OpenEngineOptions): Promise<OpenedEngine> {
  const joined = await joinOrWait(folder)
  if (joined) return { link: joined, started: false }
  const writer = writerOf(folder)
  const hasWritten = ({ source }: LocalServer) =>
    source === writer || (writer === 'download' && source === 'cached-mongod') // where a download is found again
  const own = await startFirst(folder, options.servers.filter(hasWritten), options)
  if ('link' in own) return own
  if (own.broken) {
    const name = 'others'
    const said = `not tried, because ${folder.data} was written by the one above (${writer}); to start over with another, remove that folder`
    return { tried: [...own.tried, { name, said }] }
  }
  const others = options.servers.filter((server) => !hasWritten(server))
  const other = await startFirst(folder, others, options)
  return 'link' in other ? other : { tried: [...own.tried, ...other.tried] }
}

/** Returns the source whose engine was ready on this data; undefined if there is no data, or if the source isn't known. */
function writerOf(folder: EngineFolder): LocalSource | undefined {
  return readdirSync(folder.data).length > 0 ? readState(folder)?.source : undefined
}

/** Tries the servers in turn. `broken`: one of the servers exists but doesn't work. */
async function startFirst(
  folder: EngineFolder,
  servers: LocalServer[],
  options: OpenEngineOptions,
): Promise<{ link: KeeperLink; started: boolean } | { tried: LocalAttempt[]; broken: boolean }> {
  const tried: LocalAttempt[] = []
  let broken = false
  const failed = (server: LocalServer, error: unknown) => {
    const attempt = { name: server.name, said: error instanceof Error ? error.message : String(error) }
    tried.push(attempt)
    if (error instanceof NotHere) return
    broken = true
    options.failed?.(attempt)
  }
  for (const server of servers) {
    const commands = await server.commands().catch((error: unknown) => {
      failed(server, error)
      return []
    })
    for (const command of commands) {
      const outcome = await startOrJoin(folder, server, command, options)
      if ('link' in outcome) return outcome
      failed(server, `${command.command} ${outcome.said}`)
    }
  }
  return { tried, broken }
}

async function startOrJoin(
  folder: EngineFolder,
  server: LocalServer,
  command: ServerCommand,
  { samePort = false, temporary = false, starting }: OpenEngineOptions,
): Promise<{ link: KeeperLink; started: boolean } | { said: string }> {
  for (;;) {
    const joined = await joinOrWait(folder)
    if (joined) return { link: joined, started: false }
    starting?.(server)
    const report = await launchKeeper(folder, { source: server.source, server: command, samePort, temporary })
    if (report.kind === 'failed') return { said: report.said }
    const link = await joinOrWait(folder)
    if (link) return { link, started: report.kind === 'ready' }
  }
}

/** The folder's keeper is running, but neither accepts replicas nor ends: it is stopped (SIGSTOP), or waits for a dead disk. */
export class KeeperStuck extends Error {
  override readonly name = 'KeeperStuck'
  constructor(readonly pid: number) {
    super(
      `expected the database's keeper (process ${pid}) to answer within ${STUCK_MS / 1_000} s, but it didn't; end it: kill -9 ${pid}`,
    )
  }
}

/**
 * Joins the keeper; waits while it is starting or ending. Undefined if there is no keeper.
 * @throws KeeperStuck
 */
export async function joinOrWait(folder: EngineFolder): Promise<KeeperLink | undefined> {
  const start = monotonicMs()
  for (;;) {
    const holder = keeperLockHolder(folder)
    const link = await joinKeeper(folder)
    if (link || !holder) return link
    if (monotonicMs() - start > STUCK_MS) throw new KeeperStuck(holder.pid)
    await sleep(JOIN_POLL_MS)
  }
}
