/**
 * Another process with the same locks: opens them (with the built package) as its argument says, and obeys one JSON line at a
 * time on its standard input, answering each with one.
 * `lock`, `unlock`, `extend`: on one acquisition; `run`: holds a lock with a watchdog until its signal aborts; `fight`: takes
 * and releases locks in turn and writes to a log when it enters and leaves.
 */
import { appendFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setImmediate as next, setTimeout as sleep } from 'node:timers/promises'
import { LockExecutor, openLockProvider } from '../../dist/locks/index.js'

const { name, ...options } = JSON.parse(process.argv[2])
const provider = await openLockProvider({ ...options, name, env: {} })
const executor = new LockExecutor(provider)
let held
const WORKERS = 2

const DO = {
  async lock({ config }) {
    held = await provider.lock(config)
    return held ? { fence: held.fence, lockedBy: held.lockedBy, lockUntil: held.lockUntil.getTime() } : null
  },
  unlock: () => held.unlock(),
  extend: async ({ lockAtMostFor }) => (await held.extend(lockAtMostFor)) !== undefined,
  async run({ config }) {
    const { executed } = await executor.executeWithLock(
      async ({ signal, fence }) => {
        say({ running: fence })
        if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve))
      },
      { ...config, watchdog: true },
    )
    return { ended: executed }
  },
  /** With `patient`, a server that is away is no error: it asks again. */
  async fight({ log, names, times, config, patient = false }) {
    const append = (line) => appendFileSync(log, `${JSON.stringify(line)}\n`)
    const one = async (lock) => {
      const task = async ({ fence }) => {
        append({
          lock,
          who: name,
          fence,
          enters: true,
          since: patient ? undefined : (await provider.find(lock)).lockedAt.getTime(),
          entered: Date.now(),
        })
        await next()
        append({ lock, who: name, enters: false })
      }
      const run = () => executor.executeWithLock(task, { name: lock, waitFor: '60s', ...config })
      const untilThere = async () => {
        for (;;) {
          try {
            return await run()
          } catch (error) {
            if (error.name !== 'LockProviderUnavailable') throw error
            await sleep(20)
          }
        }
      }
      const { executed } = await (patient ? untilThere() : run())
      if (!executed) throw new Error(`${lock} was not granted within a minute`)
    }
    const worker = async (first) => {
      for (let i = first; i < times; i += WORKERS) await one(names[i % names.length])
    }
    await Promise.all(Array.from({ length: WORKERS }, (_, i) => worker(i)))
    return { done: times }
  },
}

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`)
say({ ready: provider.kind })
// Not one after the other: a `run` lasts.
for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...rest } = JSON.parse(line)
  Promise.resolve(DO[op](rest)).then(
    (answer) => say({ op, answer }),
    (error) => say({ op, error: `${error.name}: ${error.message}` }),
  )
}
await provider.close()
