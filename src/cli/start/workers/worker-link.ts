import { type ChildProcess, fork } from 'node:child_process'
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { sleep } from '../../../time/index.js'
import { leanHeapFlags } from '../lean-heap.js'
import type { About, FromWorker, ToWorker, WorkerConfig } from './worker-messages.js'

export type WorkerFailure = Extract<FromWorker, { kind: 'failed' }>

/** How a worker's process came to its end. */
export interface WorkerEnd {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  /** Why it could not start, if it said so. */
  readonly failure: WorkerFailure | undefined
}

/** A scrape of metrics has time; a probe of readiness gives up after a second where nobody says otherwise. */
const METRICS_WITHIN_MS = 3_000
export const READINESS_WITHIN_MS = 500

/** The supervisor's end of one process of a worker; a restart makes another one. */
export class WorkerLink {
  /** Resolves when it works, or has ended. */
  readonly settled: Promise<void>
  readonly ended: Promise<WorkerEnd>
  /** Who it is in `lockedBy`; undefined: it doesn't work (yet, or any more). */
  identity: string | undefined
  /** How often it was asked for a sign of life since it last said anything. */
  unanswered = 0
  private failure: WorkerFailure | undefined
  private readonly answers = new Map<number, (answer: readonly unknown[]) => void>()
  private lastAsk = 0

  private constructor(private readonly child: ChildProcess) {
    const working = Promise.withResolvers<void>()
    child.on('message', (message: FromWorker) => {
      this.unanswered = 0
      if (message.kind === 'failed') this.failure = message
      else if (message.kind === 'answer') this.answers.get(message.ask)?.(message.answer)
      else {
        this.identity = message.identity
        working.resolve()
      }
    })
    this.ended = new Promise((done) => {
      const end = (code: number | null, signal: NodeJS.Signals | null) => {
        this.identity = undefined
        done({ code, signal, failure: this.failure })
      }
      child.once('exit', end)
      child.once('error', (error) => {
        this.failure ??= { kind: 'failed', name: error.name, message: error.message, exitCode: 1 }
        if (child.pid === undefined) end(null, null) // it was never there
      })
    })
    this.settled = Promise.race([working.promise, this.ended.then(() => undefined)])
  }

  /** Its streams are the supervisor's, so its log lines stand among the others; it knows of our end by the channel's. */
  static launch(config: WorkerConfig, env: NodeJS.ProcessEnv): WorkerLink {
    const child = fork(program(), [], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      env,
      execArgv: [...process.execArgv, ...leanHeapFlags(env)],
      serialization: 'advanced', // metrics hold NaN where nothing was measured yet
    })
    const link = new WorkerLink(child)
    link.tell({ kind: 'configure', config })
    return link
  }

  get pid(): number | undefined {
    return this.child.pid
  }

  /** What it says of itself; undefined: nothing in time. */
  async ask(about: Exclude<About, 'life'>): Promise<readonly unknown[] | undefined> {
    const answered = Promise.withResolvers<readonly unknown[]>()
    const ask = this.put(about)
    this.answers.set(ask, answered.resolve)
    const over = new AbortController()
    try {
      const withinMs = about === 'readiness' ? READINESS_WITHIN_MS : METRICS_WITHIN_MS
      const late = sleep(withinMs, { signal: over.signal }).then(() => undefined)
      return await Promise.race([answered.promise, late, this.ended.then(() => undefined)])
    } finally {
      over.abort()
      this.answers.delete(ask)
    }
  }

  /** Whatever it says next, this or something else, is one. */
  askForSignOfLife(): void {
    this.unanswered += 1
    this.put('life')
  }

  stop(): void {
    this.child.kill('SIGTERM')
  }
  kill(): void {
    this.child.kill('SIGKILL')
  }

  private put(about: About): number {
    this.lastAsk += 1
    this.tell({ kind: 'ask', ask: this.lastAsk, about })
    return this.lastAsk
  }

  private tell(message: ToWorker): void {
    if (this.child.connected) this.child.send(message, () => undefined)
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
