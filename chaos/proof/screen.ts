import { type Clock, systemClock } from '../../dist/time/index.js'

const WIDTH = 24

/** The display of a running demo on standard error: a line for each event and, on a terminal, a bar below them. */
export class Screen {
  private readonly out: NodeJS.WriteStream
  private readonly clock: Clock
  private readonly things: string
  private readonly startedMs: number
  private done = 0
  private total = 0
  private doing = ''
  private barShown = false

  /** @param things the things that the bar counts */
  constructor(out: NodeJS.WriteStream = process.stderr, clock: Clock = systemClock, things = 'gateways') {
    this.out = out
    this.clock = clock
    this.things = things
    this.startedMs = clock.monotonicMs()
  }

  get seconds(): number {
    return Math.round((this.clock.monotonicMs() - this.startedMs) / 100) / 10
  }

  /** Shows an event that the report is about. */
  stage(text: string): void {
    this.doing = text
    this.note(text)
  }

  note(text: string): void {
    this.clear()
    this.out.write(`${this.seconds.toFixed(1).padStart(5)} s  ${text}\n`)
    this.draw()
  }

  progress(done: number, total: number): void {
    this.done = done
    this.total = total
    this.draw()
  }

  end(): void {
    this.clear()
  }

  private draw(): void {
    if (!this.out.isTTY) return
    const filled = Math.min(WIDTH, Math.round((WIDTH * this.done) / Math.max(1, this.total)))
    const bar = '█'.repeat(filled) + '░'.repeat(WIDTH - filled)
    const line = `${bar} ${this.done}/${this.total} ${this.things} done  ${this.seconds.toFixed(0)} s  ${this.doing}`
    this.out.write(`\r\x1b[K${line.slice(0, (this.out.columns ?? 80) - 1)}`)
    this.barShown = true
  }

  private clear(): void {
    if (this.barShown) this.out.write('\r\x1b[K')
    this.barShown = false
  }
}
