import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { StorageSpecInCode } from './spec.js'

export interface StorageKeys {
  readonly accessKeyId: string
  readonly secretAccessKey: string
  readonly sessionToken?: string
}

/** Resolves a `{ secret }` reference to the keys, for example from a vault. */
export type ReadSecret = (secret: unknown) => Promise<StorageKeys>

/**
 * Reads the keys that a description points to; `undefined`: the SDK finds them itself.
 * @throws Error with the missing part in words
 */
export async function readKeys(
  credentials: StorageSpecInCode['credentials'],
  readSecret: ReadSecret | undefined,
): Promise<StorageKeys | undefined> {
  if (credentials === 'default') return undefined
  if ('accessKeyId' in credentials) return credentials
  if ('env' in credentials) return fromEnvironment(credentials.env)
  if ('folder' in credentials) return fromFolder(credentials.folder)
  if (!readSecret) throw new Error("its credentials are a { secret }: expected the option 'secrets' to read it with")
  return readSecret(credentials.secret)
}

function fromEnvironment(prefix: string): StorageKeys {
  const read = (name: string) => {
    const value = process.env[`${prefix}_${name}`]
    if (!value) throw new Error(`expected its credentials in the environment: ${prefix}_${name} is not set`)
    return value
  }
  return { accessKeyId: read('ACCESS_KEY_ID'), secretAccessKey: read('SECRET_ACCESS_KEY') }
}

async function fromFolder(folder: string): Promise<StorageKeys> {
  const read = async (name: string) => (await readFile(join(folder, name), 'utf8')).trim()
  return { accessKeyId: await read('accessKeyId'), secretAccessKey: await read('secretAccessKey') }
}
