import { setFlagsFromString } from 'node:v8'

/**
 * The space for new objects stays as small as it is (1 MB in a process that has just begun) instead of growing to 3 x 16 or 32 MB, and the
 * old space is collected when it has grown by 40 %.
 */
const FLAGS = ['--semi-space-growth-factor=1', '--heap-growing-percent=40'] as const

/** The flags for a new process, or for this one; none if whoever started it has set the sizes already. */
export function leanHeapFlags(env: NodeJS.ProcessEnv): readonly string[] {
  const given = [...process.execArgv, env['NODE_OPTIONS'] ?? ''].join(' ')
  return /(semi|old)[-_]space|heap[-_]growing/.test(given) ? [] : FLAGS
}

/**
 * Keeps this process's memory small under load, for more CPU: a replica in a process of its own that works on a burst of documents took
 * 116 to 134 MB instead of 250 to 310 (bench/README.md, Memory). Call it first, once; it is for the whole process, not for replicas alone.
 * `phaselock start` does so by itself.
 *
 * @example
 * ```ts
 * import { keepHeapLean } from 'phaselock'
 *
 * keepHeapLean()
 * ```
 * @returns whether it has done something: not where Node's options (`NODE_OPTIONS` too) set heap sizes already, which then hold
 */
export function keepHeapLean(): boolean {
  const flags = leanHeapFlags(process.env)
  for (const flag of flags) setFlagsFromString(flag)
  return flags.length > 0
}
