import { createRequire } from 'node:module'
import { join } from 'node:path'

/** The places where packages are searched: next to Phaselock itself, then from the user's folder. */
export function packageRoots(): string[] {
  return [import.meta.url, join(process.cwd(), 'package.json')]
}

/** Returns the main file of an optional package, without loading it; undefined if no root has it. */
export function findPackage(name: string, roots: string[]): string | undefined {
  for (const root of roots) {
    try {
      return createRequire(root).resolve(name)
    } catch {} // not from here
  }
  return undefined
}
