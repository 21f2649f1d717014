import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { access, constants, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { ServerFailed, ServerMissing } from './server-missing.mjs'

const run = promisify(execFile)
const LOOK_AGAIN_MS = 200
/** A holder that was killed before it could say who it is. */
const UNNAMED_LOOKS = 25
const OUTPUT_TAIL = 4_000

/** Where built programs are kept between runs, outside of the project: `$XDG_CACHE_HOME` or `~/.cache`. */
export function cacheFolder() {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'phaselock-tests')
}

/**
 * A program built from Go modules, kept in the cache folder: built once for each version of Go, sources and flags. Two
 * builds of the same at once, also of two processes: one builds, the other waits for it.
 *
 * @param program `name`: of the program; `module`: folder with go.mod, go.sum and, if any, sources; `package`: what to
 *   build, as `go build` takes it; `ldflags`: for the linker; `note`: told when it has to be built
 * @returns the path of the program
 * @throws ServerMissing without Go, ServerFailed when it doesn't build, or isn't built and a test asks for it
 */
export async function goProgram({ name, module, package: target, ldflags = '-s -w', note }) {
  const key = await versionOf({ module, target, ldflags })
  const folder = join(cacheFolder(), `${name}-${key}`)
  const program = join(folder, name)
  if (await isProgram(program)) return program
  // Minutes, which no test and no hook has: test/system.mjs builds before any of them begins.
  if (process.env.PHASELOCK_TEST_RUN)
    throw new ServerFailed(name, 'it is not built, and a test builds nothing; npm run test:system -- <its path> does')
  await mkdir(folder, { recursive: true })
  const release = await lockUnless(join(folder, 'building'), () => isProgram(program))
  if (!release) return program
  try {
    // Put in place in one move: whoever finds it finds all of it.
    note?.(`building ${name}`)
    const unfinished = join(folder, `${name}.${process.pid}`)
    await go(['build', `-ldflags=${ldflags}`, '-o', unfinished, target], module)
    await rename(unfinished, program)
    return program
  } finally {
    await release()
  }
}

/**
 * Where the sources of a module are that another one, in the folder `module`, requires; they are downloaded if need be.
 * @throws ServerMissing without Go, ServerFailed when it can't be downloaded
 */
export async function goModuleFolder(module, path) {
  return JSON.parse(await go(['mod', 'download', '-json', path], module)).Dir
}

/** What a build depends on, as a short hash. */
async function versionOf({ module, target, ldflags }) {
  const hash = createHash('sha256')
  hash.update(JSON.stringify([await go(['version'], module), target, ldflags]))
  const files = await readdir(module, { recursive: true })
  for (const file of files.filter((path) => /(^|[\\/])go\.(mod|sum)$|\.go$/.test(path)).sort()) {
    hash.update(JSON.stringify([file, await readFile(join(module, file), 'utf8')]))
  }
  return hash.digest('hex').slice(0, 16)
}

async function go(args, folder) {
  const env = { ...process.env, CGO_ENABLED: '0', GOFLAGS: '-mod=readonly -trimpath -buildvcs=false', GOWORK: 'off' }
  try {
    return (await run('go', args, { cwd: folder, env, maxBuffer: 64 * 1024 * 1024 })).stdout
  } catch (error) {
    if (error.code === 'ENOENT') throw new ServerMissing('go', 'golang-go', 'PATH')
    throw new ServerFailed(`go ${args[0]} in ${folder}`, 'it failed', String(error.stderr ?? error).slice(-OUTPUT_TAIL))
  }
}

/**
 * Takes the lock, a folder with the process id of its holder; one whose holder is gone is taken over.
 * @param isDone looked at while another has it @returns the release, `undefined` once it is done
 */
async function lockUnless(lock, isDone) {
  let unnamed = 0
  for (;;) {
    try {
      await mkdir(lock)
      await writeFile(join(lock, 'pid'), String(process.pid))
      return () => rm(lock, { recursive: true, force: true })
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
    }
    if (await isDone()) return undefined
    const holder = Number(await readFile(join(lock, 'pid'), 'utf8').catch(() => '0'))
    unnamed = holder > 0 ? 0 : unnamed + 1
    // Taken over by renaming: of several who find it left behind, one succeeds.
    if ((holder > 0 && !isRunning(holder)) || unnamed > UNNAMED_LOOKS) {
      const left = `${lock}.${process.pid}`
      await rename(lock, left).then(
        () => rm(left, { recursive: true, force: true }),
        () => undefined,
      )
      continue
    }
    await sleep(LOOK_AGAIN_MS)
  }
}

function isRunning(pid) {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error.code === 'EPERM'
  }
}

const isProgram = (path) =>
  access(path, constants.X_OK).then(
    () => true,
    () => false,
  )
