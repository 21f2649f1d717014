import { linkSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { readJson, writeJsonAtomically } from './atomic-file.js'
import type { EngineFolder } from './folder.js'
import { identify, isRunning, type ProcessIdentity } from './process-identity.js'

/**
 * The lock of a folder's keeper. Invariants: at most one keeper per folder, even after `kill -9`, and at no moment do two processes believe
 * that they are the keeper.
 *
 * A lock is a numbered file `keeper.<n>.lock` that names its holder. Only the highest number counts; it is free if its holder has
 * released it or isn't running. To take it, a process *creates* the next number (a hard link, which fails if the file exists, so only
 * one of several processes gets it). The highest file is never deleted, so numbers only grow. A process that was slow between looking
 * and creating may create a number that is already outdated: it looks again, finds a higher one, and has lost.
 */
export interface KeeperLock {
  release(): void
}

interface Holder {
  holder: ProcessIdentity | null
}

/** Returns the lock, or undefined if another running process holds it. */
export function takeKeeperLock(folder: EngineFolder): KeeperLock | undefined {
  const highest = highestLock(folder)
  if (isRunning(holderOf(folder, highest))) return undefined
  const mine = highest + 1
  const path = lockPath(folder, mine)
  const draft = join(folder.root, `keeper.${process.pid}.draft`)
  writeJsonAtomically(draft, { holder: identify(process.pid) ?? null } satisfies Holder)
  try {
    linkSync(draft, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return undefined
    throw error
  } finally {
    rmSync(draft, { force: true })
  }
  if (highestLock(folder) > mine) {
    rmSync(path, { force: true })
    return undefined
  }
  for (const number of lockNumbers(folder)) if (number < mine) rmSync(lockPath(folder, number), { force: true })
  return { release: () => writeJsonAtomically(path, { holder: null } satisfies Holder) }
}

/** Returns the current keeper, if any. */
export function keeperLockHolder(folder: EngineFolder): ProcessIdentity | undefined {
  const holder = holderOf(folder, highestLock(folder))
  return isRunning(holder) ? holder : undefined
}

const lockPath = (folder: EngineFolder, number: number) => join(folder.root, `keeper.${number}.lock`)

function lockNumbers(folder: EngineFolder): number[] {
  return readdirSync(folder.root).flatMap((name) => {
    const match = /^keeper\.(\d+)\.lock$/.exec(name)
    return match ? [Number(match[1])] : []
  })
}

const highestLock = (folder: EngineFolder) => Math.max(0, ...lockNumbers(folder))

function holderOf(folder: EngineFolder, number: number): ProcessIdentity | undefined {
  return (readJson(lockPath(folder, number)) as Holder | null | undefined)?.holder ?? undefined
}
