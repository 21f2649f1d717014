import type { Logger } from '../../../phases/index.js'
import { type Clock, formatMs, sleep, systemClock } from '../../../time/index.js'
import { CliError, type ExitCode } from '../../errors.js'
import { described } from '../../processes/replica-process.js'
import { isSilent, SignsOfLife } from './signs-of-life.js'
import { type WorkerConfig, WorkerLink } from './worker-link.js'

const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 30_000
/** The time after which a worker did not fail to start. */
const STEADY_MS = 60_000

export interface CrewOptions {
  readonly workers: readonly { readonly name: string; readonly config: WorkerConfig }[]
  readonly env: NodeJS.ProcessEnv
  readonly logger: Logger
  readonly clock?: Clock | undefined
  /** The time between two requests for a sign of life. Default 10 s. */
  readonly signOfLifeEveryMs?: number | undefined
}

interface Worker {
  readonly name: string
  readonly config: WorkerConfig
  readonly pause: RestartPause
  link: WorkerLink | undefined
}

/** The pause before a worker that has ended is restarted: 1 s, 2 s, 4 s ... 30 s; 1 s again once it was up for a minute. */
export class RestartPause {
  /** The pause after its latest end. */
  ms = FIRST_PAUSE_MS
  private nextMs = FIRST_PAUSE_MS
  private startedAtMs: number

  constructor(private readonly clock: Clock) {
    this.startedAtMs = clock.monotonicMs()
  }

  started(): void {
    this.startedAtMs = this.clock.monotonicMs()
  }

  /** The worker has ended. @returns milliseconds until the next start */
  ended(): number {
    if (this.clock.monotonicMs() - this.startedAtMs >= STEADY_MS) this.nextMs = FIRST_PAUSE_MS
    this.ms = this.nextMs
    this.nextMs = Math.min(LONGEST_PAUSE_MS, this.ms * 2)
    return this.ms
  }
}

/** The workers of one supervisor: started, killed when they hang, restarted when they have ended, stopped together. */
export class Crew {
  /** The number of restarts of workers that have ended. */
  restarts = 0
  private readonly workers: readonly Worker[]
  private readonly stopping = new AbortController()
  private readonly watched: Promise<void>[] = []
  private readonly signsOfLife: SignsOfLife

  constructor(private readonly options: CrewOptions) {
    const { clock = systemClock, logger, signOfLifeEveryMs } = options
    this.workers = options.workers.map((one) => ({ ...one, pause: new RestartPause(clock), link: undefined }))
    this.signsOfLife = new SignsOfLife(this.workers, logger, clock, signOfLifeEveryMs)
  }

  /**
   * Starts all workers; resolves to true when all work, to false when stopped before that. The first one starts alone: a problem that keeps
   * it from starting would keep all, and is reported once. Things that it creates (indexes) are there for the others.
   * @throws CliError when a worker can't start, with its exit code
   */
  async start(): Promise<boolean> {
    this.watched.push(this.signsOfLife.watch(this.stopping.signal))
    const [first, ...others] = this.workers
    await this.begin(first!)
    await Promise.all(others.map((worker) => this.begin(worker)))
    return !this.stopping.signal.aborted
  }

  get size(): number {
    return this.workers.length
  }

  /** The workers that are working now, by name. */
  get working(): Map<string, WorkerLink> {
    return new Map(this.workers.flatMap(({ name, link }) => (link?.identity ? [[name, link]] : [])))
  }

  /** The reasons why not all of them are ready, each with its worker's name. */
  async notReady(): Promise<string[]> {
    const reasons = await Promise.all(
      this.workers.map(async (worker) => {
        const { name, link } = worker
        if (this.stopping.signal.aborted) return [`${name}: stopping`]
        if (!link?.identity) return [`${name}: not running`]
        const said = (isSilent(link) ? undefined : await link.ask('readiness')) ?? [this.signsOfLife.silence(worker)]
        return said.map((reason) => `${name}: ${reason}`)
      }),
    )
    return reasons.flat()
  }

  /** The pauses that people have set, as known to any of the workers that answer. */
  async paused(): Promise<string[]> {
    return [...new Set((await this.answersOf('paused')).flat().map(String))]
  }

  /** The problems of background work in any of the workers that answer. */
  async problems(): Promise<string[]> {
    return [...new Set((await this.answersOf('problems')).flat().map(String))]
  }

  /** The metrics of the workers that answer. */
  metrics(): Promise<(readonly unknown[])[]> {
    return this.answersOf('metrics')
  }

  private async answersOf(about: 'paused' | 'problems' | 'metrics'): Promise<(readonly unknown[])[]> {
    const asked = [...this.working.values()].filter((link) => !isSilent(link))
    const answers = await Promise.all(asked.map((link) => link.ask(about)))
    return answers.filter((answer) => answer !== undefined)
  }

  /** SIGTERM to all, SIGKILL to those still there after `mostMs`. Resolves when all have ended. */
  async stop(mostMs: number): Promise<void> {
    this.stopping.abort()
    for (const { link } of this.workers) link?.stop()
    const over = new AbortController()
    const all = [...this.watched, ...this.workers.map(({ link }) => link?.ended)]
    const ended = Promise.all(all).then(() => over.abort())
    await sleep(mostMs, { signal: over.signal })
    if (!over.signal.aborted) {
      this.options.logger.error(
        `workers were still running after ${formatMs(mostMs)} and were killed; their leases end by themselves`,
      )
      this.kill()
    }
    await ended
  }

  kill(): void {
    for (const { link } of this.workers) link?.kill()
  }

  private async begin(worker: Worker): Promise<void> {
    if (this.stopping.signal.aborted) return
    const link = this.launch(worker)
    await link.settled
    if (link.identity !== undefined) this.watched.push(this.watch(worker, link))
    else {
      const end = await link.ended
      if (this.stopping.signal.aborted) return
      const { message, exitCode } = end.failure ?? { message: `it ended with ${described(end)}`, exitCode: 1 }
      throw new CliError('WorkerFailed', exitCode as ExitCode, `worker ${worker.name} could not start: ${message}`)
    }
  }

  private launch(worker: Worker): WorkerLink {
    worker.pause.started()
    worker.link = WorkerLink.launch(worker.config, this.options.env)
    return worker.link
  }

  private async watch(worker: Worker, first: WorkerLink): Promise<void> {
    const { logger } = this.options
    for (let link: WorkerLink | undefined = first; link; link = await this.launchAgain(worker)) {
      const end = await link.ended
      if (this.stopping.signal.aborted) return
      const why = end.failure ? `: ${end.failure.message}` : ''
      logger.error(
        `worker ${worker.name} (process ${link.pid}) ended with ${described(end)}${why}; it is restarted in ${formatMs(worker.pause.ended())}`,
        { worker: worker.name, code: end.code, signal: end.signal },
      )
    }
  }

  /**
   * Launches a worker after its pause, and again after a longer one if the system can't create a process; undefined if it was stopped in
   * the meantime.
   */
  private async launchAgain(worker: Worker): Promise<WorkerLink | undefined> {
    const { signal } = this.stopping
    for (;;) {
      await sleep(worker.pause.ms, { signal })
      if (signal.aborted) return undefined
      this.restarts += 1
      try {
        return this.launch(worker)
      } catch (error) {
        this.options.logger.error(
          `worker ${worker.name} could not be restarted: ${String(error)}; the next attempt is in ${formatMs(worker.pause.ended())}`,
          { worker: worker.name, error },
        )
      }
    }
  }
}
