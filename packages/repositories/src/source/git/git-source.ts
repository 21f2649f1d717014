import { createHash } from 'node:crypto'
import { anything, type Checks, checkOptions } from '../../options.js'
import { type Credentials, noCredentials, withToken } from '../credentials.js'
import { CommitGone, EmptyRepository, NoSuchBranch, SHOWN_BRANCHES } from '../errors.js'
import type { SourceSettings } from '../settings.js'
import type { Blob, Head, Source, SourceOptions, TreeEntry } from '../source.js'
import { isBranchName, type SourceUrl, sourceUrl } from '../url.js'
import { batchedBlobs } from './cat-file.js'
import { GitCache } from './git-cache.js'
import { gitFailure, isCommitRefused } from './git-failure.js'
import { treeEntries } from './ls-tree.js'
import { type GitConfig, GitFailed, gitText, startGit } from './run-git.js'

/** The settings of `gitSource`. */
export interface GitSourceSettings extends SourceSettings {
  /** The cache on this machine's disk. Sources share it. */
  readonly cache: GitCache
}

/**
 * A repository that is read by the system's git: a shallow fetch into a bare cache, then `ls-tree` and `cat-file`. Nothing is ever checked
 * out, so no path, symlink or hook of the repository reaches the disk.
 * @throws UnsafeUrl, InvalidOptions
 * @example
 * const source = gitSource({ url: 'https://gitlab.example/group/project.git', cache: new GitCache() })
 * const head = await source.head('main', { signal })
 */
export function gitSource(settings: GitSourceSettings): Source {
  const { url, credentials = noCredentials, cache } = checkOptions('gitSource', SETTINGS, settings)
  return new GitSource(sourceUrl(url), credentials, cache)
}

const SETTINGS: Checks<GitSourceSettings> = {
  url: anything,
  credentials: anything,
  cache: (value) => (value instanceof GitCache ? undefined : 'a GitCache'),
}
const HEADS = 'refs/heads/'

interface Reading {
  readonly args: readonly string[]
  readonly input: readonly string[]
  readonly signal: AbortSignal
}
type Parser<T> = (output: AsyncIterable<Buffer>) => AsyncIterable<T>

class GitSource implements Source {
  constructor(
    private readonly checked: SourceUrl,
    private readonly credentials: Credentials,
    private readonly cache: GitCache,
  ) {}

  get url(): string {
    return this.checked.text
  }

  async head(branch: string | undefined, { signal }: SourceOptions): Promise<Head> {
    const isName = branch === undefined || isBranchName(branch)
    const wanted = branch === undefined ? 'HEAD' : `${HEADS}${branch}`
    const refs = isName ? await this.refs(wanted, signal) : new Map<string, string>()
    const commit = refs.get(wanted)
    if (commit !== undefined) return { branch: branch ?? refs.get('->') ?? 'HEAD', commit }
    const all = await this.refs(`${HEADS}*`, signal)
    const branches = [...all.keys()].flatMap((ref) => (ref.startsWith(HEADS) ? [ref.slice(HEADS.length)] : []))
    if (branches.length === 0) throw new EmptyRepository(this.url)
    throw new NoSuchBranch(this.url, branch, branches.slice(0, SHOWN_BRANCHES), branches.length)
  }

  tree(head: Head, { signal }: SourceOptions): AsyncGenerator<TreeEntry> {
    const args = ['ls-tree', '-r', '-l', '-z', '--full-tree', head.commit]
    return this.fromCache(head, { args, input: [], signal }, treeEntries)
  }

  async *blobs(
    head: Head,
    blobs: readonly string[],
    { signal, maxBytes }: SourceOptions & { readonly maxBytes: number },
  ): AsyncGenerator<Blob> {
    if (blobs.length === 0) return
    const reading = { args: ['cat-file', '--batch'], input: blobs, signal }
    yield* this.fromCache(head, reading, (output) => batchedBlobs(output, maxBytes))
  }

  private async *fromCache<T>(head: Head, reading: Reading, parsed: Parser<T>): AsyncGenerator<T> {
    const held = await this.fetched(head, reading.signal)
    try {
      yield* this.read(held.folder, reading, parsed)
    } finally {
      await held[Symbol.asyncDispose]()
    }
  }

  /** Reads from the cache. After any error it may be damaged: it is removed, so that the next try fetches it again. */
  private async *read<T>(folder: string, { args, input, signal }: Reading, parsed: Parser<T>): AsyncGenerator<T> {
    const running = startGit({ args, folder, signal })
    running.stdin.end(input.map((line) => `${line}\n`).join(''))
    try {
      yield* parsed(running.stdout)
      await running.ended
    } catch (error) {
      // How the command ended says more than where its output broke off.
      const cause = await running.ended.then(
        () => error,
        (failed: unknown) => failed,
      )
      if (!signal.aborted) await this.cache.alone(folder, () => this.cache.drop(folder))
      throw cause
    } finally {
      running.kill()
    }
  }

  /** The cached repository with this commit in it. */
  private async fetched(head: Head, signal: AbortSignal) {
    const format = head.commit.length === 64 ? 'sha256' : 'sha1'
    const held = await this.cache.hold(this.url, format, signal)
    try {
      await this.cache.alone(held.folder, async () => {
        if (await hasCommit(held.folder, head.commit, signal)) return
        try {
          await this.fetch(held.folder, head, signal)
        } catch (error) {
          // Nothing that the server said: what is cached may be damaged.
          if (!(error instanceof GitFailed)) throw error
          await this.cache.renew(held.folder, format, signal)
          await this.fetch(held.folder, head, signal)
        }
      })
      return held
    } catch (error) {
      await held[Symbol.asyncDispose]()
      throw error
    }
  }

  private async fetch(folder: string, head: Head, signal: AbortSignal): Promise<void> {
    const kept = `refs/phaselock/${createHash('sha256').update(head.branch).digest('hex').slice(0, 32)}`
    const branch = head.branch === 'HEAD' ? 'HEAD' : `${HEADS}${head.branch}`
    try {
      await this.fetchRef(folder, `+${head.commit}:${kept}`, signal)
    } catch (error) {
      if (!isCommitRefused(error)) throw error
      // A server that gives out branches only: its branch may still be at this commit.
      try {
        await this.fetchRef(folder, `+${branch}:${kept}`, signal)
      } catch (other) {
        throw isCommitRefused(other) ? new CommitGone(this.url, head.commit) : other
      }
      if (!(await hasCommit(folder, head.commit, signal))) throw new CommitGone(this.url, head.commit)
    }
  }

  private async fetchRef(folder: string, refspec: string, signal: AbortSignal): Promise<void> {
    const options = ['--quiet', '--depth=1', '--no-tags', '--no-write-fetch-head', '--no-recurse-submodules']
    await this.remote(['fetch', ...options, '--end-of-options', this.url, refspec], folder, signal)
  }

  /** The server's references by name, and under `->` the branch that HEAD points to. */
  private async refs(pattern: string, signal: AbortSignal): Promise<Map<string, string>> {
    const text = await this.remote(
      ['ls-remote', '--quiet', '--symref', '--end-of-options', this.url, pattern],
      undefined,
      signal,
    )
    const refs = new Map<string, string>()
    for (const line of text.split('\n')) {
      const [first = '', name = ''] = line.split('\t')
      if (first.startsWith('ref: refs/heads/') && name === 'HEAD')
        refs.set('->', first.slice('ref: refs/heads/'.length))
      else if (/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(first)) refs.set(name, first)
    }
    return refs
  }

  private remote(args: readonly string[], folder: string | undefined, signal: AbortSignal): Promise<string> {
    return withToken(this.credentials, { signal }, async (token) => {
      const { config, secrets } = this.access(token)
      try {
        return await gitText({ args, folder, config, signal })
      } catch (error) {
        throw gitFailure(error, this.url, secrets)
      }
    })
  }

  /** A token travels in a header that git's environment sets, for this URL only; a redirect is then not followed, because git would send it on. */
  private access(token: string | undefined): { config: GitConfig; secrets: readonly string[] } {
    if (token === undefined || this.checked.kind !== 'http') return { config: {}, secrets: [] }
    const basic = Buffer.from(`${this.credentials.user ?? 'oauth2'}:${token}`).toString('base64')
    const { origin } = new URL(this.url)
    const config = {
      [`http.${origin}/.extraHeader`]: `Authorization: Basic ${basic}`,
      'http.followRedirects': 'false',
    }
    return { config, secrets: [token, basic] }
  }
}

const hasCommit = async (folder: string, commit: string, signal: AbortSignal): Promise<boolean> => {
  try {
    await gitText({ args: ['cat-file', '-e', `${commit}^{tree}`], folder, signal })
    return true
  } catch (error) {
    if (error instanceof GitFailed) return false
    throw error
  }
}
