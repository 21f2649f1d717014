import type { ServerCommand } from './engine-process.js'
import type { LocalSource } from './state.js'

/** What a replica asks a new keeper to do (the program's only argument, as JSON). */
export interface KeeperJob {
  root: string
  source: LocalSource
  server: ServerCommand
  /** Running clients know the port: wait for it and fail rather than take another. */
  samePort: boolean
  /** Remove the whole folder at the end (a test run's database). */
  temporary: boolean
}

/** What the keeper reports on its pipe, once: it keeps the engine, there already is another keeper, or the engine didn't start. */
export type KeeperReport = { kind: 'ready' } | { kind: 'busy' } | { kind: 'failed'; said: string }

/** What the keeper answers to a replica that sent the secret. */
export interface Welcome {
  port: number
  source: LocalSource
  keeperPid: number
  enginePid: number
}
