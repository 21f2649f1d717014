import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { eventually } from '../support/database.js'

const PROGRAM = fileURLToPath(new URL('holder.mjs', import.meta.url))

/** A process with locks (holder.mjs): asked by lines, killed with the test. */
export class HolderProcess {
  private out = ''
  private err = ''
  private read = 0
  private readonly ended: Promise<unknown>

  private constructor(private readonly child: ChildProcess) {
    child.stdout!.setEncoding('utf8').on('data', (text) => {
      this.out += text
    })
    child.stderr!.setEncoding('utf8').on('data', (text) => {
      this.err += text
    })
    this.ended = once(child, 'close')
  }

  static async start(options: Record<string, unknown>, name: string): Promise<HolderProcess> {
    return await HolderProcess.of(process.execPath, [PROGRAM, JSON.stringify({ ...options, name })])
  }

  /** Any program that obeys and answers in lines as holder.mjs does. */
  static async of(command: string, args: readonly string[]): Promise<HolderProcess> {
    const holder = new HolderProcess(spawn(command, [...args]))
    await holder.said((line) => line['ready'] !== undefined)
    return holder
  }

  ask(op: string, more: object = {}): void {
    this.child.stdin!.write(`${JSON.stringify({ op, ...more })}\n`)
  }

  /** Asks, and waits for the answer. */
  async answer<T>(op: string, more: object = {}): Promise<T> {
    this.ask(op, more)
    return await this.answered(op)
  }

  async answered<T>(op: string, timeoutMs?: number): Promise<T> {
    const line = await this.said((one) => one['op'] === op, timeoutMs)
    if (line['error']) throw new Error(String(line['error']))
    return line['answer'] as T
  }

  /** Waits for a line that it prints from now on (each is looked at once). */
  said(wanted: (line: Record<string, unknown>) => boolean, timeoutMs = 100_000): Promise<Record<string, unknown>> {
    return eventually(
      () => {
        const lines = this.out.split('\n').slice(0, -1)
        for (; this.read < lines.length; this.read++) {
          const line = JSON.parse(lines[this.read]!)
          if (!wanted(line)) continue
          this.read += 1
          return line
        }
        throw new Error(`expected another line, got:\n${this.out}\n${this.err}`)
      },
      { timeoutMs },
    )
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal)
  }

  /** Whatever state it is in. */
  async kill(): Promise<void> {
    this.child.kill('SIGKILL')
    await this.ended
  }
}
