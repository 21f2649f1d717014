/**
 * Readers that ask for the status once a second each, spread over it, in a process of their own: they take no time of a replica's event loop. Each has a
 * client of its own, as each process of a person or a console has.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { protocolClient } from '../dist/database/index.js'
import { systemStatus } from '../dist/operations/index.js'
import { systemIn } from './looking-fill.mjs'

const SECOND_MS = 1_000
let systems = []
let looking
let over

process.on('message', async (message) => {
  if (message === 'begin') {
    over = new AbortController()
    looking = Promise.all(systems.map((system, i) => looks(system, (i * SECOND_MS) / systems.length, over.signal)))
    process.send('began')
  } else if (message === 'end') {
    over.abort()
    process.send((await looking).reduce((sum, n) => sum + n, 0))
  } else process.send(await connected(message))
})
process.on('disconnect', () => process.exit())

async function connected({ uri, database, readers }) {
  const clients = await Promise.all(Array.from({ length: readers }, () => protocolClient(uri).connect()))
  systems = clients.map((client) => systemIn(client.db(database)))
  // The first look of a process also loads and compiles what it uses.
  await Promise.all(systems.map((system) => systemStatus(system)))
  return 'connected'
}

/** Looks until it is stopped. Returns how often. */
async function looks(system, afterMs, signal) {
  let n = 0
  await sleep(afterMs)
  while (!signal.aborted) {
    const from = performance.now()
    await systemStatus(system)
    n += 1
    await sleep(Math.max(0, SECOND_MS - (performance.now() - from)))
  }
  return n
}
