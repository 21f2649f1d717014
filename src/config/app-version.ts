import { readFileSync, realpathSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** The most characters of a version that are kept. */
const MOST_CHARACTERS = 100
const OWN_NAME = 'phaselock'

let found: string | undefined
let isSearched = false

/**
 * The version of the app that this process runs, for people who ask which replicas run which: as given, else PHASELOCK_APP_VERSION, else that of the
 * package.json nearest to the main module; where that is a tool that runs the app, such as Phaselock's own command, nearest to the current folder.
 * Undefined: there is none. Never throws.
 */
export function appVersion(given?: string): string | undefined {
  const named = given || process.env['PHASELOCK_APP_VERSION']?.trim()
  if (named) return named.slice(0, MOST_CHARACTERS)
  if (!isSearched) found = ofPackage(process.argv[1]) ?? versionAbove(process.cwd())
  isSearched = true
  return found
}

function ofPackage(main: string | undefined): string | undefined {
  try {
    const folder = main && dirname(realpathSync(main))
    return folder && !folder.includes('node_modules') ? versionAbove(folder) : undefined
  } catch {
    return undefined
  }
}

/** The version in the nearest package.json that has one, from a folder upwards. */
function versionAbove(folder: string): string | undefined {
  for (let at = folder; ; at = dirname(at)) {
    const { name, version } = packageIn(at)
    if (name === OWN_NAME) return undefined
    if (typeof version === 'string' && version !== '') return version.slice(0, MOST_CHARACTERS)
    if (at === dirname(at)) return undefined
  }
}

function packageIn(folder: string): { readonly name?: unknown; readonly version?: unknown } {
  try {
    return Object(JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')))
  } catch {
    return {}
  }
}
