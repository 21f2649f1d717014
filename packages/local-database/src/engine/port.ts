import { createHash } from 'node:crypto'
import { createServer } from 'node:net'
import { sleep } from '../time.js'

/** Below the range that systems use for the ports of outgoing connections, so that an unused port isn't lost to one. */
const FIRST_PORT = 27_100
const PORTS = 4_800

/** Yields the ports to try for a folder, always in the same order; another folder begins elsewhere. */
export function* portsFor(root: string): Generator<number> {
  const start = createHash('sha256').update(root).digest().readUInt32LE(0)
  for (let n = 0; n < 50; n++) yield FIRST_PORT + ((start + n * 7) % PORTS)
}

export function isPortFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer()
    probe.once('error', () => resolve(false))
    probe.listen({ port, host: '127.0.0.1' }, () => probe.close(() => resolve(true)))
  })
}

/** Waits until a port is free, because a server may be just ending; false if it isn't free within the time limit. */
export async function portGetsFree(port: number, withinMs: number): Promise<boolean> {
  for (let waited = 0; ; waited += 50) {
    if (await isPortFree(port)) return true
    if (waited >= withinMs) return false
    await sleep(50)
  }
}
