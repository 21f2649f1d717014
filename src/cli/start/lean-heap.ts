import { setFlagsFromString } from 'node:v8'
import { sleep } from '../../time/index.js'

/**
 * Keeps a replica's memory small: the space for new objects stays at 1 MB instead of growing to 3 x 16, the old space is
 * collected when it has grown by 40 %, and there is one optimising compiler instead of two, which stays out of memory until
 * there is work for it (`optimiseWhenBusy`). Resident memory (2 cores, six steps a document): idle 86 MB, 95 with the compiler,
 * 120 with none of this; under load 125 instead of 240, for a fifth more CPU in the replica. Nothing else in Phaselock touches V8:
 * without this the published memory figures (bench/README.md) would be missed.
 */
const FLAGS = ['--semi-space-growth-factor=1', '--heap-growing-percent=40', '--no-maglev', '--no-opt'] as const

const LOOK_EVERY_MS = 1_000
/** An idle replica takes about 10 ms of CPU a second. */
const BUSY_MICROSECONDS = 150_000

/** The flags for a new process, or for this one; none if whoever started it has set the sizes already. */
export function leanHeapFlags(env: NodeJS.ProcessEnv): readonly string[] {
  const given = [...process.execArgv, env['NODE_OPTIONS'] ?? ''].join(' ')
  return /(semi|old)[-_]space|heap[-_]growing/.test(given) ? [] : FLAGS
}

/** Call it before anything else is loaded. */
export function keepHeapLean(env: NodeJS.ProcessEnv): void {
  for (const flag of leanHeapFlags(env)) setFlagsFromString(flag)
}

/** Lets the compiler optimise from the first busy second on. Returns at once, and doesn't keep the process alive. */
export function optimiseWhenBusy(env: NodeJS.ProcessEnv): void {
  const isLean = process.execArgv.includes('--no-opt') || leanHeapFlags(env).length > 0
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
