import type { ServerCommand } from './engine-process.js'
import type { LocalSource } from './state.js'

/** The job that a replica gives to a new keeper (the program's only argument, as JSON). */
export interface KeeperJob {
  root: string
  source: LocalSource
  server: ServerCommand
  /** True if running clients know the port: wait for it and fail rather than take another. */
  samePort: boolean
  /** True to remove the whole folder at the end (a test run's database). */
  temporary: boolean
}

/** The report of the keeper on its pipe, sent once: it keeps the engine, there already is another keeper, or the engine didn't start. */
export type KeeperReport = { kind: 'ready' } | { kind: 'busy' } | { kind: 'failed'; said: string }

/** The keeper's answer to a replica that sent the secret. */
export interface Welcome {
  port: number
  source: LocalSource
  keeperPid: number
  enginePid: number
}
