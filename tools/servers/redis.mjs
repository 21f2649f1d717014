import { randomBytes } from 'node:crypto'
import { access, constants, writeFile } from 'node:fs/promises'
import { createConnection } from 'node:net'
import { delimiter, join } from 'node:path'
import { ServerMissing } from './server-missing.mjs'
import { throwaway } from './throwaway.mjs'

const PROGRAMS = ['redis-server', 'valkey-server']
const ANSWER_TIMEOUT_MS = 1_000

/** What Redis does to keep its data; the first is what its documentation recommends for queues. */
const PERSISTENCE = {
  everysec: { appendonly: 'yes', appendfsync: 'everysec', save: '""' },
  always: { appendonly: 'yes', appendfsync: 'always', save: '""' },
  /** As it comes: snapshots now and then, what came after the last one is lost. */
  snapshots: { appendonly: 'no' },
  none: { appendonly: 'no', save: '""' },
}

/**
 * Starts a Redis server on a free port of 127.0.0.1 with its data in a temporary folder.
 *
 * @param options `persistence`: `everysec` (the append-only file, flushed to disk once a second), `always` (before each
 *   reply), `snapshots` (Redis as it comes), `none`; `settings`: further lines of redis.conf, name to value
 * @throws ServerMissing when Redis isn't installed, ServerFailed when it doesn't come up
 */
export async function startRedis({ persistence = 'everysec', settings = {} } = {}) {
  const chosen = PERSISTENCE[persistence]
  if (!chosen) throw new Error(`persistence: expected ${Object.keys(PERSISTENCE).join(', ')}, got '${persistence}'`)
  const password = randomBytes(12).toString('hex')
  const lines = { bind: '127.0.0.1', 'maxmemory-policy': 'noeviction', requirepass: password, ...chosen, ...settings }
  const server = await throwaway({
    name: 'redis',
    program: await redisProgram(),
    user: undefined,
    stopSignal: 'SIGTERM',
    cutSignal: 'SIGKILL',
    prepare: (folder) =>
      writeFile(
        join(folder, 'redis.conf'),
        Object.entries({ ...lines, dir: folder })
          .map(([name, value]) => `${name} ${value}\n`)
          .join(''),
        { mode: 0o600 },
      ),
    args: (folder, port) => [join(folder, 'redis.conf'), '--port', String(port)],
    isReady: (_folder, port) => answers(port, password),
  })
  const { port } = server
  return Object.assign(server, { host: '127.0.0.1', password, url: `redis://:${password}@127.0.0.1:${port}` })
}

/** Whether it answers a ping; while it loads its data it doesn't. */
function answers(port, password) {
  return new Promise((resolve) => {
    const socket = createConnection({ port, host: '127.0.0.1' })
    let received = ''
    const end = (answer) => {
      socket.destroy()
      resolve(answer)
    }
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => end(false))
    socket.on('error', () => end(false))
    socket.on('close', () => end(false))
    socket.on('connect', () => socket.write(`AUTH ${password}\r\nPING\r\n`))
    socket.on('data', (data) => {
      received += data
      if (received.includes('+PONG')) end(true)
      else if (received.includes('-')) end(false)
    })
  })
}

async function redisProgram() {
  const folders = (process.env.PATH ?? '').split(delimiter).filter(Boolean)
  for (const path of PROGRAMS.flatMap((program) => folders.map((folder) => join(folder, program)))) {
    if (
      await access(path, constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return path
  }
  throw new ServerMissing('redis-server', 'redis-server', 'PATH')
}
