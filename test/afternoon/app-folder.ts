import { execFile } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll } from '@jest/globals'

export const ROOT = resolve(import.meta.dirname, '../..')
const exec = promisify(execFile)

/** The packages of this repository as npm publishes them, by name. */
type Tarballs = Readonly<Record<'phaselock' | 'phaselock-local-database', string>>
let tarballs: Promise<Tarballs> | undefined
afterAll(async () => {
  if (tarballs) await rm(dirname((await tarballs).phaselock), { recursive: true, force: true })
})

/** What a program printed, and how it ended. */
export interface Ran {
  readonly code: number
  readonly out: string
  readonly err: string
}

/**
 * A folder outside of this repository, in which a user makes an app: with the packed tarballs, and packages of the registry. Each
 * program runs without the settings of whoever runs the tests.
 */
export class AppFolder {
  private constructor(readonly path: string) {}

  /** @param packages for `npm install`, besides phaselock and its local database */
  static async make(packages: readonly string[], manifest: object = {}): Promise<AppFolder> {
    tarballs ??= pack()
    const folder = new AppFolder(await mkdtemp(join(tmpdir(), 'phaselock-afternoon-')))
    await folder.write('package.json', JSON.stringify({ name: 'app', version: '1.0.0', private: true, ...manifest }))
    const { code, out, err } = await folder.run(
      ...['npm', 'install', '--no-audit', '--no-fund', ...Object.values(await tarballs), ...packages],
    )
    if (code !== 0) throw new Error(`expected npm to install ${packages.join(' ')}, got:\n${out}\n${err}`)
    return folder
  }

  write(name: string, text: string): Promise<void> {
    return writeFile(join(this.path, name), text)
  }

  /** A folder of examples, as sources of the app, without its tests. */
  copyExample(name: string, to = 'src'): Promise<void> {
    const filter = (source: string) => !/\.e2e-spec\.ts$|\.config\.cjs$/.test(source)
    return cp(join(ROOT, 'examples', name), join(this.path, to), { recursive: true, filter })
  }

  async run(program: string, ...args: string[]): Promise<Ran> {
    const settings = /^(PHASELOCK_|MONGO|NODE_OPTIONS|KUBE|POD_|npm_(package|lifecycle))/
    const others = Object.entries(process.env).filter(([name]) => !settings.test(name))
    // What `.bin` has comes first, as in npm's scripts.
    const PATH = `${join(this.path, 'node_modules/.bin')}:${process.env['PATH']}`
    const env = { ...Object.fromEntries(others), PATH, NO_COLOR: '1' }
    const options = { cwd: this.path, env, timeout: 500_000 }
    return exec(program === 'node' ? process.execPath : program, args, options).then(
      ({ stdout, stderr }) => ({ code: 0, out: stdout, err: stderr }),
      (error) => ({ code: error.code ?? -1, out: error.stdout, err: `${error.stderr}${error.message}` }),
    )
  }

  remove(): Promise<void> {
    return rm(this.path, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 })
  }
}

async function pack(): Promise<Tarballs> {
  const to = await mkdtemp(join(tmpdir(), 'phaselock-packed-'))
  // --ignore-scripts: the tests have built already, and another build would pull dist from under the others.
  const packed = async (folder: string) => {
    const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', to]
    const { stdout } = await exec('npm', args, { cwd: folder })
    return join(to, JSON.parse(stdout)[0].filename)
  }
  // What `prepack` leaves out is left out of a copy, for the same reason.
  const copy = join(to, 'phaselock')
  const { files } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { files: string[] }
  const parts = files.filter((part) => !part.startsWith('!')).map((part) => part.split('/')[0]!)
  for (const part of new Set(['package.json', 'README.md', 'LICENSE', ...parts]))
    await cp(join(ROOT, part), join(copy, part), { recursive: true, filter: (from) => !from.includes('node_modules') })
  await exec(process.execPath, [join(ROOT, 'tools/package/slim.mjs'), copy])
  return {
    phaselock: await packed(copy),
    'phaselock-local-database': await packed(join(ROOT, 'packages/local-database')),
  }
}
