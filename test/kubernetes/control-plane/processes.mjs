import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { guardFolder } from '../../../tools/servers/guard.mjs'
import { ServerFailed } from '../../../tools/servers/server-missing.mjs'

const LOG_TAIL = 2_000
/** Far more than anything takes on a busy machine. */
const WAIT_MS = 180_000

/** Programs that run together, with a log file each in one folder. They go with this process, however it ends, and so does the folder. */
export class Processes {
  #children = new Map()
  #guard

  constructor(folder) {
    this.folder = folder
    this.#guard = guardFolder(folder, 'SIGKILL')
  }

  /** Starts a program under a name that is free. @throws ServerFailed when it can't be executed */
  async start(name, program, args) {
    const log = openSync(this.logFile(name), 'a')
    const child = spawn(program, args, {
      stdio: ['ignore', log, log],
      cwd: this.folder,
      // A session of its own: Ctrl-C in a terminal reaches whoever started it, who then ends it.
      detached: true,
      env: { PATH: process.env.PATH, HOME: this.folder, LC_ALL: 'C', TZ: 'UTC' },
    })
    closeSync(log)
    if (child.pid === undefined) throw new ServerFailed(program, (await once(child, 'error'))[0].message, '')
    child.unref()
    child.once('exit', () => this.#watch())
    this.#children.set(name, child)
    this.#watch()
  }

  /** Ends one of them; its name is free then. */
  async stop(name, signal = 'SIGTERM') {
    const child = this.#children.get(name)
    if (!child) return
    this.#children.delete(name)
    if (!hasEnded(child)) {
      const exit = once(child, 'exit')
      child.ref()
      child.kill(signal)
      await exit
    }
    this.#watch()
  }

  pidOf(name) {
    return this.#children.get(name)?.pid
  }

  /** Waits until `check` resolves to a truthy value. @throws ServerFailed when one of the programs has ended, or after 3 minutes */
  async until(what, check) {
    const givenUpAt = performance.now() + WAIT_MS
    for (;;) {
      const value = await check()
      if (value) return value
      for (const [name, child] of this.#children) {
        if (hasEnded(child))
          throw new ServerFailed(name, `it ended, while waiting for ${what}`, await this.#logTail(name))
      }
      if (performance.now() > givenUpAt) {
        const tails = await Promise.all([...this.#children.keys()].map((name) => this.#logTail(name)))
        throw new ServerFailed('the control plane', `no ${what} after ${WAIT_MS} ms`, tails.join('\n'))
      }
      await sleep(50)
    }
  }

  /** Ends all of them and removes the folder. */
  end() {
    return this.#guard.release()
  }

  logFile(name) {
    return join(this.folder, `${name}.log`)
  }

  async #logTail(name) {
    return (await readFile(this.logFile(name), 'utf8')).slice(-LOG_TAIL)
  }

  #watch() {
    const living = [...this.#children.values()].filter((child) => !hasEnded(child))
    this.#guard.watch(...living.map(({ pid }) => pid))
  }
}

const hasEnded = (child) => child.exitCode !== null || child.signalCode !== null
