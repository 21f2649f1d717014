import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

/** Longer than any command takes: whoever hangs fails the run instead of holding it up for ever. */
const ANSWERS_WITHIN_MS = 120_000

const PROGRAM = fileURLToPath(new URL('./worker-process.mjs', import.meta.url))

/** A peer with one of its settings in a process of its own, which goes with this one. */
export function startWorker(name, setting) {
  const child = fork(PROGRAM, [name, setting], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  const waiting = new Map()
  const hung = Promise.withResolvers()
  hung.promise.catch(() => undefined)
  let last = 0
  child.on('message', ({ id, answer, error, hang }) => {
    if (hang) {
      hung.resolve(hang)
      return
    }
    const asked = waiting.get(id)
    waiting.delete(id)
    if (error) asked?.reject(new Error(`${name} (${setting}): ${error}`))
    else asked?.resolve(answer)
  })
  child.once('exit', (code, signal) => {
    const ended = new Error(`${name} (${setting}): its process ended (${signal ?? code}); its error stands above`)
    for (const { reject } of waiting.values()) reject(ended)
  })
  return {
    name,
    setting,
    /** The first job of the kind `hang` that it began: `{ id, atMs }`. */
    hung: hung.promise,
    ask(command, given) {
      last += 1
      const answer = Promise.withResolvers()
      waiting.set(last, answer)
      child.send({ id: last, command, given })
      const limit = setTimeout(() => {
        answer.reject(
          new Error(`${name} (${setting}): no answer to '${command}' within ${ANSWERS_WITHIN_MS / 1_000} s`),
        )
      }, ANSWERS_WITHIN_MS)
      return answer.promise.finally(() => clearTimeout(limit))
    },
    /** `kill -9`, also what ends it when all is done. */
    async kill() {
      if (child.exitCode !== null || child.signalCode !== null) return
      waiting.clear()
      child.kill('SIGKILL')
      await once(child, 'exit')
    },
  }
}
