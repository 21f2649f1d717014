import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { access, chown, constants, mkdir, writeFile } from 'node:fs/promises'
import { createConnection } from 'node:net'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { ServerMissing } from './server-missing.mjs'
import { throwaway } from './throwaway.mjs'

const run = promisify(execFile)
/** Debian's folder for servers isn't in the PATH of users. */
const FURTHER = ['/usr/sbin', '/usr/local/sbin', '/opt/homebrew/bin']
const USER = 'phaselock'
const DATABASE = 'phaselock'
const ANSWER_TIMEOUT_MS = 1_000

/**
 * Starts a MariaDB server on a free port of 127.0.0.1 with its data in a temporary folder. As root it runs as `mysql`, or `nobody`.
 *
 * @param options `settings`: further lines of my.cnf, name to value
 * @throws ServerMissing when MariaDB isn't installed, ServerFailed when it doesn't come up
 */
export async function startMariadb({ settings = {} } = {}) {
  const program = await programNamed('mariadbd')
  const install = await programNamed('mariadb-install-db')
  const user = process.getuid?.() === 0 ? await otherUser() : undefined
  const password = randomBytes(12).toString('hex')
  const server = await throwaway({
    name: 'mariadb',
    program,
    user,
    stopSignal: 'SIGTERM',
    cutSignal: 'SIGKILL',
    prepare: async (folder) => {
      const data = join(folder, 'data')
      await mkdir(data, { recursive: true })
      if (user) await chown(data, user.uid, user.gid)
      const options = { ...user, cwd: folder, env: { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' } }
      // Two of them in one folder for temporary tables delete each other's.
      const args = [
        '--no-defaults',
        `--datadir=${data}`,
        `--tmpdir=${folder}`,
        '--auth-root-authentication-method=normal',
      ]
      await run(install, [...args, '--skip-test-db'], options)
      const sql = [
        `CREATE DATABASE IF NOT EXISTS ${DATABASE}`,
        `CREATE OR REPLACE USER '${USER}'@'127.0.0.1' IDENTIFIED BY '${password}'`,
        `GRANT ALL ON *.* TO '${USER}'@'127.0.0.1' WITH GRANT OPTION`,
      ]
      await writeFile(join(folder, 'init.sql'), sql.map((line) => `${line};\n`).join(''))
      if (user) await chown(join(folder, 'init.sql'), user.uid, user.gid)
    },
    args: (folder, port) => [
      ...['--no-defaults', `--datadir=${join(folder, 'data')}`, `--port=${port}`, '--bind-address=127.0.0.1'],
      ...[`--socket=${join(folder, 'server.sock')}`, `--pid-file=${join(folder, 'server.pid')}`],
      `--tmpdir=${folder}`,
      ...[`--init-file=${join(folder, 'init.sql')}`, '--skip-name-resolve', '--max-connections=200'],
      ...['--innodb-buffer-pool-size=32M', '--innodb-log-file-size=16M', '--performance-schema=OFF'],
      ...Object.entries(settings).map(([name, value]) => `--${name}=${value}`),
    ],
    isReady: (_folder, port) => greets(port),
  })
  const { port } = server
  const url = `mysql://${USER}:${password}@127.0.0.1:${port}/${DATABASE}`
  return Object.assign(server, { host: '127.0.0.1', user: USER, password, database: DATABASE, url })
}

/** Whether it sends the first packet of its protocol: with protocol version 10, not an error. It listens after the init file has run. */
function greets(port) {
  return new Promise((resolve) => {
    const socket = createConnection({ port, host: '127.0.0.1' })
    const end = (answer) => {
      socket.destroy()
      resolve(answer)
    }
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => end(false))
    socket.on('error', () => end(false))
    socket.on('close', () => end(false))
    socket.on('data', (data) => end(data[4] === 10))
  })
}

async function programNamed(name) {
  const folders = [...(process.env.PATH ?? '').split(delimiter).filter(Boolean), ...FURTHER]
  for (const folder of folders) {
    const isThere = await access(join(folder, name), constants.X_OK).then(
      () => true,
      () => false,
    )
    if (isThere) return join(folder, name)
  }
  throw new ServerMissing(name, 'mariadb-server', `PATH, ${FURTHER.join(', ')}`)
}

async function otherUser() {
  for (const name of ['mysql', 'nobody']) {
    const [uid, gid] = await Promise.all(['-u', '-g'].map((flag) => run('id', [flag, name]).catch(() => undefined)))
    if (uid && gid) return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
  }
  throw new Error("expected a user 'mysql' or 'nobody': MariaDB refuses to run as root")
}
