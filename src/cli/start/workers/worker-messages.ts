import type { Settings } from '../../../config/index.js'
import type { LogFormat } from '../../../telemetry/index.js'
import type { Said } from '../../processes/replica-process.js'

/** What one worker is to be; sent once, when its process has started. */
export interface WorkerConfig {
  /** Its own: its name, one process, no web server of its own. */
  readonly settings: Settings
  readonly cwd: string
  readonly logFormat: LogFormat
  /** Whether it is asked for its metrics. */
  readonly measured: boolean
}

/** 'life': whether its event loop turns. */
export type About = 'life' | 'readiness' | 'metrics'

export type ToWorker =
  | { readonly kind: 'configure'; readonly config: WorkerConfig }
  /** How it is: answered with the same number. */
  | { readonly kind: 'ask'; readonly ask: number; readonly about: About }

/** Nothing more (life), why it isn't ready (texts), or its metrics (as JSON of prom-client). */
export interface Answer {
  readonly kind: 'answer'
  readonly ask: number
  readonly answer: readonly unknown[]
}

export type FromWorker = Said | Answer
