import type { Settings } from '../../../config/index.js'
import type { LogFormat } from '../../../telemetry/index.js'
import type { Said } from '../../processes/replica-process.js'

/** The configuration of one worker; sent once, when its process has started. */
export interface WorkerConfig {
  /** The worker's own: its name, one process, no web server. */
  readonly settings: Settings
  readonly cwd: string
  readonly logFormat: LogFormat
  /** Whether it will be asked for its metrics. */
  readonly measured: boolean
}

/** 'life': whether its event loop is running. */
export type About = 'life' | 'readiness' | 'metrics'

export type ToWorker =
  | { readonly kind: 'configure'; readonly config: WorkerConfig }
  /** Asks about its state: answered with the same number. */
  | { readonly kind: 'ask'; readonly ask: number; readonly about: About }

/** Nothing more (life), why it isn't ready (strings), or its metrics (prom-client's JSON). */
export interface Answer {
  readonly kind: 'answer'
  readonly ask: number
  readonly answer: readonly unknown[]
}

export type FromWorker = Said | Answer
