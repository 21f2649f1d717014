import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'

/**
 * A process and the moment it started, so that a reused process id is never taken for the old process. On Linux that moment counts
 * from the boot: after a reboot a process may have the same id and the same moment.
 */
export interface ProcessIdentity {
  pid: number
  started: string
  /** The boot of the machine; absent if the moment is a date, and in files of versions that didn't write it. */
  boot?: string | undefined
}

const BOOT = bootId()

/** Returns the identity of a running process; undefined if there is none, or only an unreaped zombie. */
export function identify(pid: number): ProcessIdentity | undefined {
  const started = process.platform === 'linux' ? startedOnLinux(pid) : startedByPs(pid)
  return started === undefined ? undefined : { pid, started, ...(BOOT !== undefined && { boot: BOOT }) }
}

export function isRunning(who: ProcessIdentity | undefined): boolean {
  if (who === undefined || (who.boot ?? BOOT) !== BOOT) return false
  return identify(who.pid)?.started === who.started
}

/** Sends a signal, unless the process is gone or its id now belongs to another one. */
export function signalProcess(who: ProcessIdentity, signal: NodeJS.Signals): void {
  if (!isRunning(who)) return
  try {
    process.kill(who.pid, signal)
  } catch {} // gone in between
}

function bootId(): string | undefined {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
  } catch {
    return undefined // another system, or a sandbox without it
  }
}

function startedOnLinux(pid: number): string | undefined {
  try {
    // The name in parentheses may contain spaces and parentheses: count the fields from the last ')'.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19]
  } catch {
    return undefined
  }
}

function startedByPs(pid: number): string | undefined {
  try {
    const [state, ...started] = execFileSync('ps', ['-o', 'stat=,lstart=', '-p', String(pid)], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    })
      .trim()
      .split(/\s+/)
    return !state || state.startsWith('Z') ? undefined : started.join(' ')
  } catch {
    return undefined
  }
}
