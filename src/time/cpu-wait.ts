import { readFileSync } from 'node:fs'

/**
 * The milliseconds that this thread has been ready to run without getting a processor since it started. Linux counts them; 0 on
 * other systems. A handler that computes, or waits in a synchronous call, adds nothing to it. (Reading it takes some 10 us.)
 */
export const cpuWaitMs = (): number => scheduled().waitedMs

/** The slowdown of this thread's work since it started, compared with a machine of its own: 1 or more. */
export function cpuSlowdown(): number {
  const { ranMs, waitedMs } = scheduled()
  return ranMs > 0 ? (ranMs + waitedMs) / ranMs : 1
}

function scheduled(): { ranMs: number; waitedMs: number } {
  try {
    const [ranNs, waitedNs] = readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ')
    return { ranMs: Number(ranNs) / 1e6 || 0, waitedMs: Number(waitedNs) / 1e6 || 0 }
  } catch {
    return { ranMs: 0, waitedMs: 0 }
  }
}
