import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Settings } from '../../../config/index.js'
import { sleep } from '../../../time/index.js'
import type { LogFormat } from '../../line-logger.js'
import { ReplicaProcess, type Said } from '../../processes/replica-process.js'
import { leanFlags } from '../lean-heap.js'

/** The time limits of answers. A metrics scrape can wait; a readiness probe gives up after one second by default. */
const METRICS_WITHIN_MS = 3_000
export const READINESS_WITHIN_MS = 500

/** The configuration of one worker; sent once, when its process has started. */
export interface WorkerConfig {
  /** The worker's own: its name, one process, no web server. */
  readonly settings: Settings
  readonly cwd: string
  readonly logFormat: LogFormat
  /** True if it will be asked for its metrics. */
  readonly measured: boolean
}

/** The subject of a request; 'life' asks for a sign that its event loop is running. */
export type About = 'life' | 'readiness' | 'paused' | 'problems' | 'metrics'

export type ToWorker =
  | { readonly kind: 'configure'; readonly config: WorkerConfig }
  /** A request about its state, answered with the same number. */
  | { readonly kind: 'ask'; readonly ask: number; readonly about: About }

/**
 * The answer to a request: nothing more (life), the reasons why it isn't ready or the pauses of people (strings), or its metrics
 * (prom-client's JSON).
 */
export interface Answer {
  readonly kind: 'answer'
  readonly ask: number
  readonly answer: readonly unknown[]
}

export type FromWorker = Said | Answer

/** The supervisor's end of a worker's channel: a replica that can be asked about its state. */
export class WorkerLink extends ReplicaProcess<Answer, ToWorker> {
  /** The number of requests for a sign of life since its last message. */
  unanswered = 0
  private readonly answers = new Map<number, (answer: readonly unknown[]) => void>()
  private lastAsk = 0

  /**
   * Starts a worker. It writes to the supervisor's streams, so its log lines appear among the others; it notices our end by the end of its
   * channel.
   */
  static launch(config: WorkerConfig, env: NodeJS.ProcessEnv): WorkerLink {
    const link = new WorkerLink(program(), { env, execArgv: [...process.execArgv, ...leanFlags(env)] })
    link.tell({ kind: 'configure', config })
    return link
  }

  /** Its answer; undefined if there was none in time. */
  async ask(about: Exclude<About, 'life'>): Promise<readonly unknown[] | undefined> {
    const answered = Promise.withResolvers<readonly unknown[]>()
    const ask = this.put(about)
    this.answers.set(ask, answered.resolve)
    const over = new AbortController()
    try {
      const withinMs = about === 'metrics' ? METRICS_WITHIN_MS : READINESS_WITHIN_MS
      const late = sleep(withinMs, { signal: over.signal }).then(() => undefined)
      return await Promise.race([answered.promise, late, this.ended.then(() => undefined)])
    } finally {
      over.abort()
      this.answers.delete(ask)
    }
  }

  /** Asks for a sign of life; its next message, whatever it is, counts as one. */
  askForSignOfLife(): void {
    this.unanswered += 1
    this.put('life')
  }

  protected override received(said: FromWorker): void {
    this.unanswered = 0
    if (said.kind === 'answer') this.answers.get(said.ask)?.(said.answer)
  }

  private put(about: About): number {
    this.lastAsk += 1
    this.tell({ kind: 'ask', ask: this.lastAsk, about })
    return this.lastAsk
  }
}

/** The worker's program is plain JavaScript: a run from the TypeScript sources (the tests) uses the built one. */
function program(): string {
  const here = fileURLToPath(new URL('.', import.meta.url))
  const folder = import.meta.url.endsWith('.ts') ? resolve(here, '../../../../dist/cli/start/workers') : here
  const path = resolve(folder, 'worker-process.js')
  if (!existsSync(path)) throw new Error(`expected the built program ${path}, it is missing; run \`npm run build\``)
  return path
}
