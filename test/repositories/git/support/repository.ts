import { execFile, spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

/** A file of a commit: its content, or what else an entry of a tree can be. */
export type TestFile = string | Buffer | { readonly symlink: string } | { readonly submodule: string }

/** A bare repository in a temporary folder. Its commits are written by `git fast-import`, so any name and any mode is possible. */
export class TestRepository implements AsyncDisposable {
  readonly folder: string

  private constructor(folder: string) {
    this.folder = folder
  }

  static async create({ format = 'sha1' }: { format?: 'sha1' | 'sha256' } = {}): Promise<TestRepository> {
    const folder = join(await mkdtemp(join(tmpdir(), 'phaselock-origin-')), 'project.git')
    await promisify(execFile)('git', ['init', '-q', '--bare', '-b', 'main', `--object-format=${format}`, folder])
    return new TestRepository(folder)
  }

  async git(...args: string[]): Promise<string> {
    return (await this.output(...args)).trim()
  }

  async output(...args: string[]): Promise<string> {
    return (await promisify(execFile)('git', args, { cwd: this.folder, maxBuffer: 64_000_000 })).stdout
  }

  /** Writes a commit of exactly these files over whatever the branch was; `onto` the branch keeps its history. */
  async commit(
    files: Readonly<Record<string, TestFile>> | ReadonlyMap<string | Buffer, TestFile>,
    { branch = 'main', onto = true }: { branch?: string; onto?: boolean } = {},
  ): Promise<string> {
    const there = await this.git('rev-parse', '-q', '--verify', `refs/heads/${branch}`).catch(() => undefined)
    const ref = `refs/heads/${branch}`
    const parts: (string | Buffer)[] = []
    if (!onto) parts.push(`reset ${ref}\n\n`)
    parts.push(`commit ${ref}\ncommitter T <t@example.org> 1700000000 +0000\ndata 1\nx\n`)
    if (onto && there) parts.push(`from ${there}\n`)
    parts.push('deleteall\n')
    for (const [path, file] of files instanceof Map ? files : Object.entries(files)) {
      const quoted = quotedPath(path as string | Buffer)
      if (typeof file === 'object' && 'submodule' in file) {
        parts.push(`M 160000 ${file.submodule} ${quoted}\n`)
        continue
      }
      const isLink = typeof file === 'object' && 'symlink' in file
      const content = Buffer.from(isLink ? file.symlink : (file as string))
      parts.push(`M ${isLink ? '120000' : '100644'} inline ${quoted}\ndata ${content.length}\n`, content, '\n')
    }
    await this.input(
      ['fast-import', '--quiet', '--force', '--done'],
      Buffer.concat([...parts, 'done\n'].map((part) => Buffer.from(part))),
    )
    return this.git('rev-parse', ref)
  }

  /** Runs git with this on its standard input. */
  input(args: readonly string[], bytes: Buffer): Promise<string> {
    return new Promise((resolve, reject) => {
      const child = spawn('git', args, { cwd: this.folder, stdio: ['pipe', 'pipe', 'inherit'] })
      let text = ''
      child.stdout.on('data', (chunk) => {
        text += chunk
      })
      child.on('close', (code) => (code === 0 ? resolve(text.trim()) : reject(new Error(`git ${args[0]}: ${code}`))))
      child.stdin.end(bytes)
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(join(this.folder, '..'), { recursive: true, force: true })
  }
}

const quotedPath = (path: string | Buffer): string =>
  `"${[...Buffer.from(path)].map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('')}"`
