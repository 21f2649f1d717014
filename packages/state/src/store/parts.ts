import type { Clock, Logger } from 'phaselock'
import type { Backend } from './backend.js'
import type { Bell } from './bell.js'
import type { Guard } from './guard.js'
import type { Hearing } from './hearing.js'

/** The parts that all values of a store share. */
export interface StoreParts {
  readonly backend: Backend
  readonly guard: Guard
  /** Undefined: the doorbell is off. */
  readonly bell: Bell | undefined
  readonly hearing: Hearing
  readonly clock: Clock
  readonly logger: Logger
  /** Called with each write: from then on this process takes its part in removing what has expired. */
  readonly used: () => void
}
