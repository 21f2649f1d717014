import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { access, chown, constants, readdir, readFile, writeFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { ServerMissing } from './server-missing.mjs'
import { throwaway } from './throwaway.mjs'

const run = promisify(execFile)
/** Where Debian and Homebrew put what is not in PATH: one folder for each major version. */
const INSTALLED = ['/usr/lib/postgresql', '/opt/homebrew/opt', '/usr/local/opt']
const USER = 'postgres'

/**
 * Starts a PostgreSQL server on a free port of 127.0.0.1 with its data in a temporary folder.
 * It refuses to run as root: then it runs as `postgres`, or `nobody`.
 *
 * @param options `durable` (true): as in production; false turns fsync and synchronous commits off, for tests that
 *   don't look at durability; `settings`: further lines of postgresql.conf, name to value
 * @throws ServerMissing when PostgreSQL isn't installed, ServerFailed when it doesn't come up
 */
export async function startPostgres({ durable = true, settings = {} } = {}) {
  const bin = await programFolder()
  const user = process.getuid?.() === 0 ? await otherUser() : undefined
  const password = randomBytes(12).toString('hex')
  const server = await throwaway({
    name: 'postgres',
    program: join(bin, 'postgres'),
    user,
    stopSignal: 'SIGINT',
    cutSignal: 'SIGQUIT',
    prepare: (folder) => makeCluster(folder, bin, user, password, configuration(durable, settings)),
    args: (folder, port) => ['-D', dataOf(folder), '-p', String(port)],
    isReady,
  })
  const { port } = server
  return Object.assign(server, {
    host: '127.0.0.1',
    user: USER,
    password,
    database: 'postgres',
    url: `postgres://${USER}:${password}@127.0.0.1:${port}/postgres`,
  })
}

const dataOf = (folder) => join(folder, 'data')

function configuration(durable, settings) {
  const lines = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    // Files in the data folder instead of POSIX shared memory, which would outlive a `kill -9`.
    dynamic_shared_memory_type: 'mmap',
    max_connections: '200',
    ...(durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
    ...settings,
  }
  return Object.entries(lines)
    .map(([name, value]) => `${name} = '${String(value).replaceAll("'", "''")}'\n`)
    .join('')
}

async function makeCluster(folder, bin, user, password, text) {
  const passwordFile = join(folder, 'password')
  await writeFile(passwordFile, `${password}\n`, { mode: 0o600 })
  if (user) await chown(passwordFile, user.uid, user.gid)
  const args = ['-D', dataOf(folder), '-U', USER, '-A', 'scram-sha-256', `--pwfile=${passwordFile}`]
  const options = { ...user, cwd: folder, env: { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' } }
  await run(join(bin, 'initdb'), [...args, '-E', 'UTF8', '--no-locale', '--no-sync'], options)
  const file = join(dataOf(folder), 'postgresql.auto.conf')
  await writeFile(file, text)
}

/** The server writes its process id into the first line of this file, and `ready` into the eighth. */
async function isReady(folder, _port, pid) {
  const lines = (await readFile(join(dataOf(folder), 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')
  return Number(lines[0]) === pid && lines[7]?.trim() === 'ready'
}

/** The folder of `postgres` and `initdb`: in PATH, else the newest one installed. */
async function programFolder() {
  const fromPath = (process.env.PATH ?? '').split(delimiter).filter(Boolean)
  const installed = await Promise.all(
    INSTALLED.map(async (root) => {
      const names = (await readdir(root).catch(() => [])).filter((name) => /^(postgresql@?)?\d*$/.test(name))
      return names.sort((a, b) => versionOf(b) - versionOf(a)).map((name) => join(root, name, 'bin'))
    }),
  )
  for (const folder of [...fromPath, ...installed.flat()]) {
    if ((await isProgram(join(folder, 'initdb'))) && (await isProgram(join(folder, 'postgres')))) return folder
  }
  throw new ServerMissing('postgres', 'postgresql', `PATH, ${INSTALLED.join(', ')}`)
}

const versionOf = (name) => Number(/\d+$/.exec(name)?.[0] ?? 0)

const isProgram = (path) =>
  access(path, constants.X_OK).then(
    () => true,
    () => false,
  )

async function otherUser() {
  for (const name of ['postgres', 'nobody']) {
    const [uid, gid] = await Promise.all(['-u', '-g'].map((flag) => run('id', [flag, name]).catch(() => undefined)))
    if (uid && gid) return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
  }
  throw new Error("expected a user 'postgres' or 'nobody': PostgreSQL refuses to run as root")
}
