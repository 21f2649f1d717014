import { randomBytes } from 'node:crypto'
import { readFileSync, renameSync, writeFileSync } from 'node:fs'

/** Replaces a JSON file in one step: a reader sees the old text or the new one, never half of it. Readable only by its owner. */
export function writeJsonAtomically(path: string, value: unknown): void {
  const temporary = `${path}.${process.pid}.${randomBytes(4).toString('hex')}.tmp`
  writeFileSync(temporary, `${JSON.stringify(value, null, 2)}\n`, { mode: 0o600 })
  renameSync(temporary, path)
}

/** Returns the value in a JSON file; undefined if it is missing or isn't JSON (a manually edited file counts as missing). */
export function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8'))
  } catch {
    return undefined
  }
}
