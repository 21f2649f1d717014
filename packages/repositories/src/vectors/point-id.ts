import { createHash } from 'node:crypto'

/**
 * The id of a chunk's point: a UUID (version 8: 122 bits of SHA-256) of repository, path and the hash of its text. Equal texts of one file share a
 * point, so count the different hashes of a file.
 * @example
 * ```ts
 * pointId('billing', 'src/invoice.ts', 'c0ffee') // '8b2a...', the same everywhere and always
 * ```
 */
export function pointId(repository: string, path: string, hash: string): string {
  // JSON keeps ('a', 'bc') and ('ab', 'c') apart, whatever characters are in them.
  const digest = createHash('sha256')
    .update(JSON.stringify([repository, path, hash]))
    .digest()
  digest[6] = (digest[6]! & 0x0f) | 0x80
  digest[8] = (digest[8]! & 0x3f) | 0x80
  const hex = digest.toString('hex', 0, 16)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}
