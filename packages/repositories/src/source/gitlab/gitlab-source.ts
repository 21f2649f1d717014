import { anything, type Checks, checkOptions } from '../../options.js'
import { noCredentials } from '../credentials.js'
import { CommitGone, EmptyRepository, NoSuchBranch, RepositoryNotFound, SHOWN_BRANCHES, UnsafeUrl } from '../errors.js'
import { kindOf } from '../git/ls-tree.js'
import type { SourceSettings } from '../settings.js'
import type { Blob, Head, Source, SourceOptions, TreeEntry } from '../source.js'
import { isBranchName, sourceUrl } from '../url.js'
import { GitlabApi, nextPage } from './gitlab-api.js'

const SETTINGS: Checks<GitlabSourceSettings> = { url: anything, credentials: anything, api: anything }
const PER_PAGE = '100'

/** The settings of `gitlabSource`. */
export interface GitlabSourceSettings extends SourceSettings {
  /** The API, where GitLab isn't at the root of its host. Default `<the URL's origin>/api/v4`. */
  readonly api?: string | undefined
}

/**
 * A GitLab repository that is read without git, by five calls of the REST API: branch, project, branches, tree, blob. A token needs `read_api`.
 * @throws UnsafeUrl, InvalidOptions
 * @example gitlabSource({ url: 'https://gitlab.example/group/project', credentials: fixedToken(process.env.GITLAB_TOKEN!) })
 */
export function gitlabSource(settings: GitlabSourceSettings): Source {
  const { url, credentials = noCredentials, api } = checkOptions('gitlabSource', SETTINGS, settings)
  const { text, kind } = sourceUrl(url)
  if (kind !== 'http') throw new UnsafeUrl("a GitLab source needs the project's https URL")
  const { origin, pathname } = new URL(text)
  const base = api === undefined ? `${origin}/api/v4` : sourceUrl(api).text.replace(/\/+$/, '')
  const name = decodeURIComponent(pathname)
    .replace(/^\/+|\/+$/g, '')
    .replace(/\.git$/, '')
  return new GitlabSource(text, new GitlabApi(text, `${base}/projects/${encodeURIComponent(name)}`, credentials))
}

interface Project {
  readonly default_branch?: string | null
  readonly empty_repo?: boolean
}

interface Branch {
  readonly name: string
  readonly commit: { readonly id: string }
}

interface Node {
  readonly id: string
  readonly path: string
  readonly type: 'tree' | 'blob' | 'commit'
  readonly mode: string
}

class GitlabSource implements Source {
  constructor(
    readonly url: string,
    private readonly api: GitlabApi,
  ) {}

  async head(branch: string | undefined, { signal }: SourceOptions): Promise<Head> {
    if (branch !== undefined) {
      const found = await this.branch(branch, signal)
      if (found) return found
    }
    const project = (await this.api.json<Project>('', {}, signal))?.body
    if (!project)
      throw new RepositoryNotFound(
        this.url,
        'GitLab 404 Not Found',
        'the token needs read_api, and a member who sees it',
      )
    const name = project.default_branch
    if (project.empty_repo || !name) throw new EmptyRepository(this.url)
    if (branch === undefined) {
      const found = await this.branch(name, signal)
      if (found) return found
    }
    const listed = await this.api.json<Branch[]>('/repository/branches', { per_page: String(SHOWN_BRANCHES) }, signal)
    const names = listed?.body.map((one) => one.name) ?? []
    throw new NoSuchBranch(this.url, branch ?? name, names, Number(listed?.headers.get('x-total') ?? names.length))
  }

  private async branch(name: string, signal: AbortSignal): Promise<Head | undefined> {
    if (!isBranchName(name)) return undefined
    const found = await this.api.json<Branch>(`/repository/branches/${encodeURIComponent(name)}`, {}, signal)
    return found && { branch: name, commit: found.body.commit.id }
  }

  async *tree({ commit }: Head, { signal }: SourceOptions): AsyncGenerator<TreeEntry> {
    const first = { ref: commit, recursive: 'true', pagination: 'keyset', per_page: PER_PAGE }
    let query: Record<string, string> | undefined = first
    for (let before = ''; query; ) {
      const page: Awaited<ReturnType<typeof this.api.json<Node[]>>> = await this.api.json<Node[]>(
        '/repository/tree',
        query,
        signal,
      )
      if (!page) throw new CommitGone(this.url, commit)
      for (const { path, id, type, mode } of page.body)
        if (type !== 'tree') yield { path, blob: id, kind: kindOf(mode), bytes: undefined }
      const next = nextPage(page.headers)
      query = next && { ...next, ...first }
      const at = JSON.stringify(next)
      if (next && at === before) throw new Error(`GitLab's listing names the same next page twice: ${at}`)
      before = at
    }
  }

  async *blobs(
    _head: Head,
    blobs: readonly string[],
    { signal, maxBytes }: SourceOptions & { readonly maxBytes: number },
  ): AsyncGenerator<Blob> {
    for (const blob of blobs) {
      const found = await this.api.bytes(`/repository/blobs/${blob}/raw`, maxBytes, signal)
      if (!found) yield { blob, missing: 'gone' }
      else if (found.body === undefined) yield { blob, missing: 'too large' }
      else yield { blob, content: found.body }
    }
  }
}
