import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

/**
 * A program of this folder in a process of its own, that answers each message with one. It ends with this process.
 * @param program the file's name
 * @param what it is, for the error of one that ends early
 */
export function child(program, what) {
  const process = fork(fileURLToPath(new URL(`./${program}`, import.meta.url)), {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  const exited = once(process, 'exit')
  const replies = []
  const waiting = []
  let failure
  process.on('message', (message) => {
    const next = waiting.shift()
    if (next) next.resolve(message)
    else replies.push(message)
  })
  void exited.then(([code]) => {
    failure = new Error(`${what} ended with code ${code}; its error stands above`)
    for (const { reject } of waiting.splice(0)) reject(failure)
  })
  /** The next message that no one has taken. */
  const reply = () => {
    if (replies.length > 0) return Promise.resolve(replies.shift())
    if (failure) return Promise.reject(failure)
    return new Promise((resolve, reject) => waiting.push({ resolve, reject }))
  }
  return {
    reply,
    send: (message) => process.send(message),
    ask(message) {
      process.send(message)
      return reply()
    },
    async close() {
      if (process.connected) process.disconnect()
      await exited
    },
  }
}
