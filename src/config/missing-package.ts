import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'

/** Packages that are loaded only on demand, and aren't installed. */
export class MissingPackage extends Error {
  override readonly name = 'MissingPackage'
  constructor(
    /** The feature that needs them. */
    readonly feature: string,
    /** Their names, as arguments of `npm install`. */
    readonly packages: readonly string[],
  ) {
    super(`${feature} needs ${packages.join(', ')}, not installed here; run: npm install ${packages.join(' ')}`)
  }
}

/** @throws MissingPackage naming every package that can't be found */
export function requirePackages(feature: string, packages: readonly string[], isThere = isInstalled): void {
  const missing = packages.filter((name) => !isThere(name))
  if (missing.length > 0) throw new MissingPackage(feature, missing)
}

const here = createRequire(import.meta.url)

/** Looks for the package's folder, because resolving its package.json fails if the package doesn't export it. */
const isInstalled = (name: string): boolean =>
  (here.resolve.paths(name) ?? []).some((folder) => existsSync(join(folder, name, 'package.json')))
