import { once } from 'node:events'
import { createServer } from 'node:net'

/** Different free ports of 127.0.0.1. Outgoing connections draw from above 32768, so they don't take one before its server does. */
export async function freePorts(count) {
  const ports = new Set()
  while (ports.size < count) {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    if (await isFree(port)) ports.add(port)
  }
  return [...ports]
}

async function isFree(port) {
  const probe = createServer()
  try {
    await once(probe.listen(port, '127.0.0.1'), 'listening')
    return true
  } catch {
    return false
  } finally {
    probe.close()
  }
}
