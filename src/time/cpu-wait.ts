import { readFileSync } from 'node:fs'

/**
 * How many milliseconds this thread has been ready to run without getting a processor since it started, as Linux counts them; 0 on
 * other systems. A handler that computes, or waits in a synchronous call, adds nothing to it. (Reading it takes some 10 us.)
 */
export const cpuWaitMs = (): number => scheduled().waitedMs

/** How many times longer this thread's work has taken since it started than on a machine of its own: 1 or more. */
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
