import { setFlagsFromString } from 'node:v8'
import { leanHeapFlags } from '../../lean-heap.js'
import { sleep } from '../../time/index.js'

/**
 * The flags that a replica's process is started with, so that its memory stays small. Besides a small heap it has one optimizing compiler
 * instead of two,
 * which stays out of memory until there is work for it (`optimizeWhenBusy`). Resident memory (2 cores, six steps a document): idle 86 MB,
 * 95
 * with the compiler, 120 with none of this; under load 125 instead of 240, for a fifth more CPU in the replica. Without this the published
 * memory figures (bench/README.md) would be missed.
 */
export function leanFlags(env: NodeJS.ProcessEnv): readonly string[] {
  const flags = leanHeapFlags(env)
  return flags.length > 0 ? [...flags, '--no-maglev', '--no-opt'] : []
}

const LOOK_EVERY_MS = 1_000
/** The CPU time in a second from which a replica is busy; an idle one takes about 10 ms. */
const BUSY_MICROSECONDS = 150_000

/** Sets the flags of a lean process; call it before anything else is loaded. */
export function beginLean(env: NodeJS.ProcessEnv): void {
  for (const flag of leanFlags(env)) setFlagsFromString(flag)
}

/** Lets the compiler optimize from the first busy second on. Returns immediately, and doesn't keep the process alive. */
export function optimizeWhenBusy(env: NodeJS.ProcessEnv): void {
  const isLean = process.execArgv.includes('--no-opt') || leanFlags(env).length > 0
  if (isLean) void untilBusy().then(() => setFlagsFromString('--opt'))
}

async function untilBusy(): Promise<void> {
  for (let busy = 0; busy < BUSY_MICROSECONDS; ) {
    const before = process.cpuUsage()
    await sleep(LOOK_EVERY_MS, { unref: true })
    const { user, system } = process.cpuUsage(before)
    busy = user + system
  }
}
