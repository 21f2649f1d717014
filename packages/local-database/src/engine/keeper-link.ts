import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { createInterface } from 'node:readline'
import type { EngineFolder } from './folder.js'
import type { Welcome } from './keeper-job.js'
import { isRunning } from './process-identity.js'
import { readState } from './state.js'

/** A replica's connection to the keeper. While it is open the engine runs. It doesn't keep the replica's process alive. */
export interface KeeperLink extends Welcome {
  /** Resolves once the keeper is gone or has ended the connection. */
  closed: Promise<void>
  close(): void
}

const ANSWER_WITHIN_MS = 2_000

/**
 * Joins the keeper that `engine.json` names. Undefined if there is none: no file, a dead process, a port that now belongs to another
 * program (it doesn't answer the secret), or a keeper that is just ending.
 */
export async function joinKeeper(folder: EngineFolder): Promise<KeeperLink | undefined> {
  const keeper = readState(folder)?.keeper
  if (!keeper || !isRunning(keeper.process)) return undefined
  const socket = connect({ host: '127.0.0.1', port: keeper.controlPort })
  socket.on('error', () => undefined)
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
  socket.write(`${keeper.secret}\n`)
  const welcome = await firstAnswer(socket, closed)
  if (!welcome) {
    socket.destroy()
    return undefined
  }
  socket.unref()
  return { ...welcome, closed, close: () => void socket.destroy() }
}

async function firstAnswer(socket: Socket, closed: Promise<void>): Promise<Welcome | undefined> {
  socket.setTimeout(ANSWER_WITHIN_MS, () => socket.destroy())
  // It emits the socket's errors too: a reset because the keeper is ending is no error for the joining process.
  const lines = createInterface({ input: socket }).on('error', () => undefined)
  const answer = await Promise.race([once(lines, 'line').catch(() => undefined), closed])
  socket.setTimeout(0)
  try {
    const welcome = JSON.parse(String(answer?.[0])) as Welcome
    return Number.isInteger(welcome.port) ? welcome : undefined
  } catch {
    return undefined
  }
}
