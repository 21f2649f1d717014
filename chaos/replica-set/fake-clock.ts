import { glob } from 'node:fs/promises'

/** Where Debian's package `libfaketime` and others put it. */
const PLACES = ['/usr/lib/*/faketime/libfaketimeMT.so.1', '/usr/lib{,64}/faketime/libfaketimeMT.so.1']

/** The path of libfaketime, which gives a program another clock: that in LIBFAKETIME, else an installed one; undefined if there is none. */
export async function fakeTimeLibrary(env: NodeJS.ProcessEnv = process.env): Promise<string | undefined> {
  if (env['LIBFAKETIME']) return env['LIBFAKETIME']
  for await (const path of glob(PLACES)) return path
  return undefined
}

/** The environment of a program whose clock is ahead by so many seconds (below 0: behind); its monotonic clock stays. @throws Error without libfaketime */
export async function aheadBy(seconds: number): Promise<NodeJS.ProcessEnv> {
  const library = await fakeTimeLibrary()
  if (!library)
    throw new Error('expected libfaketime for a clock of its own, found none: install the package libfaketime')
  const offset = seconds < 0 ? String(seconds) : `+${seconds}`
  return { ...process.env, LD_PRELOAD: library, FAKETIME: offset, FAKETIME_DONT_FAKE_MONOTONIC: '1' }
}
