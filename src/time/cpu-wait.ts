import { readFileSync } from 'node:fs'

/**
 * How many milliseconds this thread has been ready to run and got no processor, since it began: Linux counts it. 0 where nobody
 * does. A handler that computes, or waits in a synchronous call, adds nothing to it. (Reading it takes some 10 us.)
 */
export function cpuWaitMs(): number {
  try {
    const [, waitedNs] = readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ')
    return Number(waitedNs) / 1e6 || 0
  } catch {
    return 0
  }
}
