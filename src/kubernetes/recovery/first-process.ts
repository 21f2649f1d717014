import { readFile } from 'node:fs/promises'

/** Ticks a second of the times in /proc, the same on all platforms that Node runs on. */
const TICKS = 100
/** The 22nd field of /proc/<pid>/stat; the second one may hold spaces and ends with the last bracket. */
const STARTED_AT = 22 - 3

/**
 * How long ago the first process of this container began, in milliseconds; undefined if that can't be determined. Processes that
 * start later in the same container get the same answer.
 */
export async function firstProcessAgeMs(): Promise<number | undefined> {
  try {
    const [stat, uptime] = await Promise.all([readFile('/proc/1/stat', 'utf8'), readFile('/proc/uptime', 'utf8')])
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const age = Number(uptime.split(' ')[0]) - Number(fields[STARTED_AT]) / TICKS
    return Number.isFinite(age) && age >= 0 ? age * 1_000 : undefined
  } catch {
    return undefined
  }
}
