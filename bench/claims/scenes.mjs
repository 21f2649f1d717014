import { setTimeout as sleep } from 'node:timers/promises'
import { rounded } from '../statistics.mjs'
import { endedTogether, startWorker } from './crew.mjs'
import { account, nowMs } from './ledger.mjs'

const LIMIT_MS = 180_000
const LOOK_EVERY_MS = 20
/** A late write that hasn't come by then was refused. */
const LATE_WRITE_MS = 3_000

let spaces = 0
const newSpace = () => {
  spaces += 1
  return `claims_${process.pid}_${spaces}`
}

/** Prepares documents for a contestant, and removes them and the workers that `body` started. */
async function staged(contestant, { servers, folder }, documents, body) {
  const { prepare, remaining, doneBy, drop } = await import(`./${contestant.module}.mjs`)
  const space = newSpace()
  const crew = []
  const addresses = { ...servers.addresses, redis: servers.addresses[contestant.redis ?? 'redis'] }
  await prepare(addresses, space, documents)
  try {
    return await body({
      start(options) {
        const worker = startWorker(contestant, { folder, servers: addresses, space, ...options })
        crew.push(worker)
        return worker
      },
      async allDone(limitMs = LIMIT_MS) {
        const untilMs = nowMs() + limitMs
        while ((await remaining(addresses, space)) > 0) {
          for (const worker of crew) worker.requireAlive()
          if (nowMs() > untilMs) throw new Error(`${contestant.name}: not all done after ${limitMs} ms`)
          await sleep(LOOK_EVERY_MS)
        }
      },
      doneBy: () => doneBy(addresses, space),
      account: () =>
        account(
          crew.map(({ ledgerFile }) => ledgerFile),
          documents,
        ),
    })
  } finally {
    for (const worker of crew) await worker.kill()
    await drop(addresses, space)
  }
}

/**
 * Two workers on the same documents: claims, works that do nothing and releases in a second, from the first document that
 * was begun until the database knows all as done. Starting and connecting is left out.
 */
export const throughput = (contestant, stage, documents) =>
  staged(contestant, stage, documents, async ({ start, allDone, account: counted }) => {
    const crew = [start({ leaseMs: 30_000 }), start({ leaseMs: 30_000 })]
    await endedTogether(crew, documents, LIMIT_MS)
    await allDone()
    const endedMs = nowMs()
    const { firstMs, ...counts } = counted()
    return { perSecond: Math.round(documents / ((endedMs - firstMs) / 1_000)), ...counts }
  })

/** `kill -9` of the one that holds a document: seconds until the other begins to work on it, null beyond the limit. */
export const killedHolder = (contestant, stage, leaseMs) =>
  staged(contestant, stage, 1, async ({ start }) => {
    const holder = start({ leaseMs, holds: true })
    await holder.held
    const other = start({ leaseMs, holds: true })
    await other.ready
    const killedMs = nowMs()
    await holder.kill()
    const held = await within(other.held, patience(leaseMs))
    return { recoverySeconds: held ? rounded((held.atMs - killedMs) / 1_000, 1) : null }
  })

/**
 * The holder is stopped (SIGSTOP, as a long collection of garbage or a frozen machine does) for more than two leases, then
 * goes on and records what it was about to record.
 * @returns `takenOverSeconds`: when the other began, null when it didn't all that time; `lateWrite`: whether the
 *   document ended up as the paused one, which had lost it, left it
 */
export const pausedHolder = (contestant, stage, leaseMs) =>
  staged(contestant, stage, 1, async ({ start, allDone, doneBy }) => {
    const holder = start({ leaseMs, holds: true })
    await holder.held
    const other = start({ leaseMs, holds: true })
    await other.ready
    holder.pause()
    const pausedMs = nowMs()
    const held = await within(other.held, patience(leaseMs))
    if (held) {
      other.release()
      await allDone()
    }
    holder.resume()
    holder.release()
    await endedTogether([holder], 1, LIMIT_MS)
    await allDone()
    const isHolders = async () => (await doneBy()) === holder.name
    for (const untilMs = nowMs() + LATE_WRITE_MS; held && nowMs() < untilMs && !(await isHolders()); ) {
      await sleep(LOOK_EVERY_MS)
    }
    return {
      takenOverSeconds: held ? rounded((held.atMs - pausedMs) / 1_000, 1) : null,
      lateWrite: held !== undefined && (await isHolders()),
    }
  })

/**
 * The server is killed in the middle (`kill -9`) and started again; the workers go on by themselves. About 32 documents
 * are held by each when it happens, and the work on them takes longer than the restart.
 */
export const serverRestart = (contestant, stage, { documents, leaseMs, workMs }) =>
  staged(contestant, stage, documents, async ({ start, allDone, account: counted }) => {
    const begin = () => start({ leaseMs, workMs, ...(contestant.batch ? { batch: 16, lanes: 2 } : {}) })
    const crew = [begin(), begin()]
    await endedTogether(crew, Math.round(documents / 4), LIMIT_MS)
    const crashedMs = nowMs()
    await stage.servers.crash[contestant.crashes]()
    await allDone()
    const secondsToTheEnd = rounded((nowMs() - crashedMs) / 1_000, 1)
    const { firstMs, ...counts } = counted()
    return { secondsToTheEnd, ...counts }
  })

/** How long the other one gets: two leases, and time to start on a busy machine. */
const patience = (leaseMs) => 2 * leaseMs + 6_000

async function within(promise, limitMs) {
  const giveUp = new AbortController()
  const limit = sleep(limitMs, undefined, { signal: giveUp.signal }).catch(() => undefined)
  try {
    return await Promise.race([promise, limit])
  } finally {
    giveUp.abort()
  }
}
