import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const program = fileURLToPath(new URL('./contestant-process.mjs', import.meta.url))

/**
 * A process of its own that works when told to: the one that measures does nothing meanwhile. It stays for all rounds,
 * so that what is measured is warm.
 */
export async function contestant(uri) {
  const child = fork(program, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  const ask = async (message) => {
    child.send(message)
    const [reply] = await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(([code]) => {
        throw new Error(`a contestant's process ended with code ${code}; its error stands above`)
      }),
    ])
    return reply
  }
  await ask({ uri })
  return {
    /** Works on a database until nothing is due. @returns what was done, seconds, and what the process has used */
    run: (job) => ask({ job }),
    close() {
      child.disconnect()
      return child.exitCode === null ? once(child, 'exit') : undefined
    },
  }
}
