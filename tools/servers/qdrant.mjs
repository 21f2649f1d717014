import { fileURLToPath } from 'node:url'
import { pythonWheel } from './python-wheel.mjs'
import { throwaway } from './throwaway.mjs'

const ENGINE = 'qdrant-edge-py'
const VERSION = '0.9.0'
const ANSWER_TIMEOUT_MS = 1_000

/** Installs Qdrant's engine unless it is installed: a wheel of 14 MB, kept in the cache folder. @throws WheelMissing */
export const installQdrant = () => pythonWheel(ENGINE, VERSION)

/**
 * Starts Qdrant's own engine behind an HTTP server of ours, on a free port of 127.0.0.1 with its data in a temporary folder. Talk to it with Qdrant's
 * official client. The engine, its storage and its log are Qdrant's; the HTTP, without cluster, limits and keys, is not.
 *
 * @throws WheelMissing when the engine can't be installed, ServerFailed when it doesn't come up
 */
export async function startQdrant() {
  const { folder: engine, python } = await installQdrant()
  const program = fileURLToPath(new URL('qdrant.py', import.meta.url))
  const server = await throwaway({
    name: 'qdrant',
    program: python,
    user: undefined,
    stopSignal: 'SIGTERM',
    cutSignal: 'SIGKILL',
    env: { PYTHONPATH: engine },
    prepare: async () => undefined,
    args: (folder, port) => ['-B', program, `${folder}/data`, String(port)],
    isReady: (_folder, port) => answers(port),
  })
  return Object.assign(server, { host: '127.0.0.1', url: `http://127.0.0.1:${server.port}` })
}

async function answers(port) {
  try {
    const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS)
    const response = await fetch(`http://127.0.0.1:${port}/`, { signal, headers: { connection: 'close' } })
    await response.arrayBuffer()
    return response.ok
  } catch {
    return false
  }
}
