import type { Credentials } from './credentials.js'

/** The settings that each source has. */
export interface SourceSettings {
  readonly url: string
  /** Default: none, for repositories that everyone may read. */
  readonly credentials?: Credentials | undefined
}

/** Refuses unknown settings. @throws TypeError */
export function checkOptions<T extends SourceSettings>(called: string, settings: T, others: readonly string[]): T {
  const known = ['url', 'credentials', ...others]
  const [unknown] = Object.keys(settings).filter((name) => !known.includes(name))
  if (unknown !== undefined) throw new TypeError(`${called}: unknown setting '${unknown}'; known: ${known.join(', ')}`)
  return settings
}
