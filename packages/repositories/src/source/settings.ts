import type { Credentials } from './credentials.js'

/** The settings that each source has. */
export interface SourceSettings {
  readonly url: string
  /** Default: none, for repositories that everyone may read. */
  readonly credentials?: Credentials | undefined
}
