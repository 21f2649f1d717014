import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const PROGRAM = fileURLToPath(new URL('./worker-process.mjs', import.meta.url))

let workers = 0

/**
 * A worker of a contestant in a process of its own.
 * @param contestant `{ module, ...options }`
 * @param options `folder` for its ledger, `servers`, `space`, `leaseMs`; `workMs`: how long each piece of work takes;
 *   `holds`: it never ends the work on its own, only when told to with `release()`
 */
export function startWorker({ module, ...settings }, { folder, ...options }) {
  workers += 1
  const name = `worker-${workers}`
  const ledgerFile = join(folder, `${name}.ledger`)
  const child = fork(PROGRAM, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  const ready = Promise.withResolvers()
  const held = Promise.withResolvers()
  for (const { promise } of [ready, held]) promise.catch(() => undefined)
  let ended = 0
  let failure
  let killed = false
  let changed = () => undefined
  child.on('message', (message) => {
    if (message.ready) ready.resolve()
    if (message.held) held.resolve(message.held)
    if (message.ended) {
      ended = message.ended
      changed()
    }
  })
  child.once('exit', (code, signal) => {
    failure = new Error(`a worker of ${module} ended (${signal ?? code}); its error stands above`)
    ready.reject(failure)
    held.reject(failure)
  })
  child.send({ begin: { ...settings, ...options, module, ledgerFile, name } })
  return {
    name,
    ledgerFile,
    ready: ready.promise,
    /** Resolves to `{ atMs }` when it has begun to work on something that it holds. */
    held: held.promise,
    ended: () => ended,
    onEnded: (listener) => {
      changed = listener
    },
    /** @throws when it has ended by itself */
    requireAlive() {
      if (failure && !killed) throw failure
    },
    release: () => child.send({ release: true }),
    pause: () => child.kill('SIGSTOP'),
    resume: () => child.kill('SIGCONT'),
    async kill() {
      if (child.exitCode !== null || child.signalCode !== null) return
      killed = true
      child.kill('SIGKILL')
      await once(child, 'exit')
    },
  }
}

/** Resolves when the workers together have ended so many, rejects when that takes too long. */
export function endedTogether(crew, count, limitMs) {
  return new Promise((resolve, reject) => {
    const sum = () => crew.reduce((total, worker) => total + worker.ended(), 0)
    const timer = setTimeout(
      () => reject(new Error(`expected ${count} done within ${limitMs} ms, got ${sum()}`)),
      limitMs,
    )
    const look = () => {
      if (sum() < count) return
      clearTimeout(timer)
      resolve()
    }
    for (const worker of crew) worker.onEnded(look)
    look()
  })
}
