import { readJson, writeJsonAtomically } from './atomic-file.js'
import type { EngineFolder } from './folder.js'
import type { ProcessIdentity } from './process-identity.js'

/** The kind of local server that is running. */
export type LocalSource = 'system-mongod' | 'cached-mongod' | 'embedded' | 'download'

/** The data a replica needs to join: the keeper's port, and the secret that proves that it is the keeper of this folder. */
export interface KeeperAddress {
  process: ProcessIdentity
  controlPort: number
  secret: string
}

/**
 * The content of `engine.json`, written only by the keeper. `port` outlives keeper and engine: a restart uses it again if it is free, so
 * that connection strings and running clients stay valid.
 */
export interface EngineState {
  port: number
  source: LocalSource
  engine?: ProcessIdentity | undefined
  keeper?: KeeperAddress | undefined
}

export function readState(folder: EngineFolder): EngineState | undefined {
  const state = readJson(folder.state) as Partial<EngineState> | null | undefined
  if (!state || typeof state !== 'object' || !isPort(state.port)) return undefined
  const { port, source = 'embedded', engine, keeper } = state
  return {
    port,
    source,
    engine: isIdentity(engine) ? engine : undefined,
    keeper: keeper && isIdentity(keeper.process) && isPort(keeper.controlPort) ? keeper : undefined,
  }
}

export function writeState(folder: EngineFolder, state: EngineState): void {
  writeJsonAtomically(folder.state, state)
}

const isPort = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) > 0 && Number(value) < 65_536
const isIdentity = (value: unknown): value is ProcessIdentity =>
  Number.isInteger((value as ProcessIdentity | undefined)?.pid) &&
  typeof (value as ProcessIdentity | undefined)?.started === 'string'
