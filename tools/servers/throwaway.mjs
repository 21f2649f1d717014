import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { chown, mkdtemp, readdir, readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from './free-port.mjs'
import { guardFolder } from './guard.mjs'
import { ServerFailed } from './server-missing.mjs'

const START_TIMEOUT_MS = 60_000
const PORT_TRIES = 5
const LOG_TAIL = 2_000

/**
 * A server in a folder of its own under the system's temporary folder. It listens on 127.0.0.1 only, keeps its port for
 * as long as it lives, and goes with its folder when `stop()` is called or this process ends.
 *
 * @param kind
 * - `program`: its path
 * - `user`: `{ uid, gid }` that it runs as, `undefined` for ours
 * - `stopSignal`: a clean stop that doesn't wait for clients; `cutSignal`: the quickest stop that leaves nothing behind
 * - `env`: further variables of its environment
 * - `prepare(folder)`: once, before the first start
 * - `args(folder, port)`: its arguments
 * - `isReady(folder, port, pid)`: whether it answers
 */
export async function throwaway(kind) {
  const folder = await mkdtemp(join(tmpdir(), `phaselock-${kind.name}-`))
  const guard = guardFolder(folder, kind.cutSignal)
  try {
    if (kind.user) await chown(folder, kind.user.uid, kind.user.gid)
    await kind.prepare(folder)
    return await startOnFreePort(folder, kind, guard)
  } catch (error) {
    await guard.release()
    throw error
  }
}

async function startOnFreePort(folder, kind, guard) {
  for (let attempt = 1; ; attempt += 1) {
    const port = await freePort()
    try {
      const first = await start(folder, port, kind, guard)
      return running(folder, port, kind, guard, first)
    } catch (error) {
      // Somebody else took the port between our look and the server's.
      if (attempt === PORT_TRIES || !/address already in use/i.test(error.log ?? '')) throw error
    }
  }
}

function running(folder, port, kind, guard, first) {
  let child = first
  let stopped
  const end = async (signal) => {
    const ending = child
    if (!ending) return
    child = undefined
    const children = signal === 'SIGKILL' ? await childrenOf(ending.pid) : []
    const exit = gone(ending) ? undefined : once(ending, 'exit')
    ending.ref()
    ending.kill(signal)
    for (const pid of children) killQuietly(pid)
    await exit
    guard.watch()
  }
  return {
    port,
    folder,
    /** The server's process, `undefined` while none runs. */
    get pid() {
      return child?.pid
    },
    /** `kill -9` of the server and of the processes that it started: nothing is flushed, its data stay. */
    kill9: () => end('SIGKILL'),
    /** Starts it again on the same data and port; a running one is stopped cleanly first. */
    async restart() {
      if (stopped) throw new Error('this server was stopped and its data are gone; start another one')
      await end(kind.stopSignal)
      child = await start(folder, port, kind, guard)
    },
    /** Stops it and removes its data. */
    stop() {
      stopped ??= end(kind.cutSignal).then(() => guard.release())
      return stopped
    },
  }
}

async function start(folder, port, kind, guard) {
  const logFile = join(folder, 'server.log')
  const log = openSync(logFile, 'w')
  const child = spawn(kind.program, kind.args(folder, port), {
    stdio: ['ignore', log, log],
    cwd: folder,
    detached: true,
    env: { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC', ...kind.env },
    ...kind.user,
  })
  closeSync(log)
  const failed = new Promise((resolve) => child.once('error', resolve))
  if (child.pid === undefined) throw new ServerFailed(kind.program, (await failed).message, '')
  guard.watch(child.pid)
  child.unref()
  const givenUpAt = performance.now() + START_TIMEOUT_MS
  while (!(await kind.isReady(folder, port, child.pid))) {
    const late = performance.now() > givenUpAt
    if (!late && !gone(child)) {
      await sleep(20)
      continue
    }
    child.kill('SIGKILL')
    guard.watch()
    const tail = (await readFile(logFile, 'utf8')).slice(-LOG_TAIL)
    throw new ServerFailed(kind.program, late ? `not ready after ${START_TIMEOUT_MS} ms` : 'it ended', tail)
  }
  return child
}

const gone = (child) => child.exitCode !== null || child.signalCode !== null

/** The processes that a process has started (Linux; elsewhere they notice themselves that it is gone). */
async function childrenOf(pid) {
  const tasks = await readdir(`/proc/${pid}/task`).catch(() => [])
  const lists = await Promise.all(
    tasks.map((task) => readFile(`/proc/${pid}/task/${task}/children`, 'utf8').catch(() => '')),
  )
  return lists.flatMap((list) => list.split(' ').filter(Boolean).map(Number))
}

function killQuietly(pid) {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It ended by itself.
  }
}
