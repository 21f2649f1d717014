import { InvalidArgumentError, Option } from 'commander'
import { durationMs } from '../dist/time/index.js'

const DEFAULT_LOCK_TIMEOUT_MS = 4_000

/** Options that the proof and the runs of chaos share. */
export const sharedOptions = (): readonly Option[] => [
  new Option('--json', 'print one JSON object instead of the report'),
  new Option('--ledger <file>', 'write the ledger to a file, one entry per line'),
  new Option('--documents <count>', 'how many documents').argParser(count).hideHelp(),
  new Option('--lock-timeout <duration>', 'the lock timeout, at least 2s')
    .argParser(lockTimeout)
    .default(DEFAULT_LOCK_TIMEOUT_MS)
    .hideHelp(),
]

export interface SharedFlags {
  readonly json?: boolean
  readonly ledger?: string
  readonly documents?: number
  readonly lockTimeout: number
}

function count(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value >= 20) return value
  throw new InvalidArgumentError('expected a whole number of at least 20')
}

function lockTimeout(text: string): number {
  try {
    const ms = durationMs(text)
    if (ms >= 2_000) return ms
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message)
  }
  throw new InvalidArgumentError('expected at least 2s')
}
