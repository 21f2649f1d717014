import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'

const root = resolve(import.meta.dirname, '../..')
export const run = promisify(execFile)

/** Packs a package. --ignore-scripts: the tests have built already, and another build would pull dist from under the others. */
export async function pack(folder: string, ...more: string[]): Promise<{ filename: string; files: string[] }> {
  const { stdout } = await run('npm', ['pack', '--json', '--ignore-scripts', ...more], { cwd: join(root, folder) })
  const [{ filename, files }] = JSON.parse(stdout)
  return { filename, files: files.map((file: { path: string }) => file.path) }
}

/** A folder outside of this repository with the other packages that are installed here, in which ours are installed from their tarballs. */
export class InstalledFolder {
  private constructor(readonly path: string) {}

  static async make(): Promise<InstalledFolder> {
    const path = await mkdtemp(join(tmpdir(), 'phaselock-installed-'))
    await mkdir(join(path, 'node_modules'))
    // No link to ours, because what is linked finds its own packages in this repository.
    const others = (await readdir(join(root, 'node_modules'))).filter((name) => !name.startsWith('phaselock'))
    for (const name of others) await symlink(join(root, 'node_modules', name), join(path, 'node_modules', name))
    return new InstalledFolder(path)
  }

  /** Unpacks a published package where npm would put it. */
  async install(name: string, from: string): Promise<void> {
    const { filename } = await pack(from, '--pack-destination', this.path)
    const to = join(this.path, 'node_modules', name)
    await mkdir(to, { recursive: true })
    await run('tar', ['-xzf', join(this.path, filename), '-C', to, '--strip-components=1'])
  }

  remove(): Promise<void> {
    return rm(this.path, { recursive: true, force: true, maxRetries: 10 })
  }
}
