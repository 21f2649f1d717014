/** A program, forked by crew.mjs: one worker of one contestant, with its ledger. */
import { setTimeout as sleep } from 'node:timers/promises'
import { nowMs, openLedger } from './ledger.mjs'

const COUNT_EVERY_MS = 10

const { promise: released, resolve: releaseHeld } = Promise.withResolvers()

process.on('message', async ({ begin, release }) => {
  if (release) releaseHeld()
  if (!begin) return
  const { module, ledgerFile, workMs = 0, holds = false, ...options } = begin
  const ledger = openLedger(ledgerFile)
  let ended = 0
  let told = 0
  setInterval(() => {
    if (ended > told) process.send({ ended })
    told = ended
  }, COUNT_EVERY_MS)
  const workOn = async (id) => {
    ledger.begun(id)
    if (holds) {
      process.send({ held: { atMs: nowMs() } })
      await released
    } else if (workMs > 0) await sleep(workMs * (0.5 + Math.random()))
    ledger.ended(id)
    ended += 1
  }
  const contestant = await import(`./${module}.mjs`)
  await contestant.work(options, workOn)
  process.send({ ready: true })
})
process.on('disconnect', () => process.exit(0))
