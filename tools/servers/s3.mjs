import { randomBytes } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { goProgram } from './go-program.mjs'
import { throwaway } from './throwaway.mjs'

const REGION = 'eu-central-1'
const ANSWER_TIMEOUT_MS = 1_000

/** Builds the server unless it is built: about a minute the first time, then it is found in the cache folder. */
export function buildS3() {
  return goProgram({
    name: 'versitygw',
    module: fileURLToPath(new URL('s3', import.meta.url)),
    package: 'github.com/versity/versitygw/cmd/versitygw',
  })
}

/**
 * Starts an S3 server (the Versity S3 Gateway on a folder) on a free port of 127.0.0.1, with bucket versioning.
 *
 * @param options `accounts`: further accounts, name to role: `userplus` makes buckets of its own, `user` may not; the
 *   secret key of each is that of the administrator
 * @throws ServerMissing without Go, ServerFailed when it doesn't build or come up
 */
export async function startS3({ accounts = {} } = {}) {
  const accessKeyId = 'administrator'
  const secretAccessKey = randomBytes(12).toString('hex')
  const server = await throwaway({
    name: 's3',
    program: await buildS3(),
    user: undefined,
    stopSignal: 'SIGTERM',
    cutSignal: 'SIGKILL',
    async prepare(folder) {
      for (const name of ['data', 'attributes', 'versions', 'accounts']) await mkdir(join(folder, name))
      const entries = Object.entries(accounts).map(([name, role]) => [
        name,
        { access: name, secret: secretAccessKey, role, userID: 0, groupID: 0 },
      ])
      const file = join(folder, 'accounts', 'users.json')
      await writeFile(file, JSON.stringify({ accessAccounts: Object.fromEntries(entries) }), { mode: 0o600 })
    },
    args: (folder, port) => [
      ...['--port', `127.0.0.1:${port}`, '--access', accessKeyId, '--secret', secretAccessKey, '--region', REGION],
      ...['--iam-dir', join(folder, 'accounts'), '--health', '/health', '--quiet'],
      // Attributes in files of their own: not each temporary folder's file system has extended ones.
      ...['posix', '--sidecar', join(folder, 'attributes'), '--versioning-dir', join(folder, 'versions')],
      join(folder, 'data'),
    ],
    isReady: (_folder, port) => answers(port),
  })
  const endpoint = `http://127.0.0.1:${server.port}`
  return Object.assign(server, { endpoint, region: REGION, accessKeyId, secretAccessKey })
}

async function answers(port) {
  try {
    const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS)
    const response = await fetch(`http://127.0.0.1:${port}/health`, { signal, headers: { connection: 'close' } })
    await response.arrayBuffer()
    return response.ok
  } catch {
    return false
  }
}
