import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import { InvalidOptions } from 'phaselock'
import { KeyUnusable } from './errors.js'

/** The environment variable with the keys. */
export const KEYS_VARIABLE = 'PHASELOCK_STATE_KEYS'

const ALGORITHM = 'aes-256-gcm'
const KEY_BYTES = 32
/** The length that NIST SP 800-38D, 8.2 recommends: random ones are safe for 2^32 seals with one key. */
const IV_BYTES = 12
const TAG_BYTES = 16
const A_KEY = `<name>=<${KEY_BYTES} bytes in base64>, such as k1=$(openssl rand -base64 ${KEY_BYTES})`

/**
 * The keys that seal secrets (AES-256-GCM), newest first: the first one seals, all of them open. A sealed text names its key:
 * `k2.<base64url of iv, tag and ciphertext>`.
 */
export class Keyring {
  private constructor(private readonly keys: ReadonlyMap<string, Buffer>) {}

  /**
   * Reads keys: `k2=<base64>,k1=<base64>`, newest first.
   * @throws InvalidOptions; the message has no key
   */
  static from(text: string | undefined): Keyring {
    const problems: string[] = []
    const keys = new Map<string, Buffer>()
    for (const one of (text ?? '').split(/[\s,]+/).filter(Boolean)) {
      const [, name, base64 = ''] = /^([\w-]{1,32})=([A-Za-z0-9+/_-]+={0,2})$/.exec(one) ?? []
      const key = Buffer.from(base64, 'base64')
      if (name === undefined) problems.push(`${KEYS_VARIABLE}: expected ${A_KEY}, got an entry of another form`)
      else if (key.length !== KEY_BYTES)
        problems.push(`${KEYS_VARIABLE}: ${name}: expected ${KEY_BYTES} bytes in base64, got ${key.length}`)
      else if (keys.has(name)) problems.push(`${KEYS_VARIABLE}: expected names that differ, got ${name} twice`)
      else keys.set(name, key)
    }
    if (problems.length === 0 && keys.size === 0)
      problems.push(`expected ${KEYS_VARIABLE} to have the keys of secrets, newest first, got none: ${A_KEY}`)
    if (problems.length > 0) throw new InvalidOptions('Keyring', problems)
    return new Keyring(keys)
  }

  /** The name of the key that seals. */
  get newest(): string {
    return this.keys.keys().next().value as string
  }

  /** The names of all keys, newest first. */
  get names(): string[] {
    return [...this.keys.keys()]
  }

  /** Seals a text. @param place its only place: it can't be opened for another one */
  seal(text: string, place: string): string {
    const iv = randomBytes(IV_BYTES)
    const cipher = createCipheriv(ALGORITHM, this.keys.get(this.newest)!, iv).setAAD(Buffer.from(place))
    const sealed = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()])
    return `${this.newest}.${Buffer.concat([iv, cipher.getAuthTag(), sealed]).toString('base64url')}`
  }

  /** Opens a sealed text. @throws KeyUnusable */
  open(sealed: string, place: string): string {
    const name = keyOf(sealed)
    const key = this.keys.get(name)
    if (!key)
      throw new KeyUnusable(
        name,
        `${KEYS_VARIABLE} has no key ${name}, which sealed ${place}; it has ${this.names.join(', ')}`,
      )
    const bytes = Buffer.from(sealed.slice(name.length + 1), 'base64url')
    const [iv, tag] = [bytes.subarray(0, IV_BYTES), bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES)]
    try {
      const decipher = createDecipheriv(ALGORITHM, key, iv, { authTagLength: TAG_BYTES }).setAAD(Buffer.from(place))
      decipher.setAuthTag(tag)
      return decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES), undefined, 'utf8') + decipher.final('utf8')
    } catch {
      const problem = `expected the key ${name} of ${KEYS_VARIABLE} to open ${place}; it is another key than the one that sealed it, or the sealed text was changed`
      throw new KeyUnusable(name, problem)
    }
  }
}

/** Opens a sealed text; undefined if no key does. */
export function openedBy(keyring: Keyring, sealed: string, place: string): string | undefined {
  try {
    return keyring.open(sealed, place)
  } catch (error) {
    if (error instanceof KeyUnusable) return undefined
    throw error
  }
}

/** The name of the key that sealed a text. */
export const keyOf = (sealed: string): string => sealed.slice(0, Math.max(0, sealed.indexOf('.')))
