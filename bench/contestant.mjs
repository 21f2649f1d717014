import { child } from './child.mjs'

/**
 * A process of its own that works when told to: the one that measures does nothing meanwhile. It stays for all rounds,
 * so that what is measured is warm.
 */
export async function contestant(uri) {
  const { ask, reply, send, close } = child('contestant-process.mjs', "a contestant's process")
  await ask({ uri })
  return {
    /** Works on a database until nothing is due. @returns what was done, seconds, and what the process has used */
    async run(job) {
      await ask({ job })
      return await ask({ go: true })
    },
    /** Gets ready for that. @returns what makes it go */
    async ready(job) {
      await ask({ job })
      return () => ask({ go: true })
    },
    /**
     * Works on a database while others fill it, until `job.until` documents are done.
     * @returns once it works: `done` resolves to what the process has used
     */
    async begin(job) {
      await ask({ job: { ...job, flows: true } })
      return { done: reply() }
    },
    /**
     * Runs a replica that works on whatever comes; tells `heard` of its counts whenever more is done.
     * @returns once it works: what ends it
     */
    async stay(job, received) {
      await ask({ job: { ...job, stays: true } })
      const ended = (async () => {
        for (;;) {
          const counts = await reply()
          if (counts.ended) return
          received(counts)
        }
      })()
      return async () => {
        send({ go: true })
        await ended
      }
    },
    close,
  }
}
