/** A repository that can't be read until a person changes something. Its message says what was seen and what to do. */
export abstract class SourceProblem extends Error {}

/** A URL that isn't passed to git. */
export class UnsafeUrl extends SourceProblem {
  override readonly name = 'UnsafeUrl'
  constructor(
    /** The problem. It doesn't repeat the URL, which may contain a password. */
    readonly problem: string,
  ) {
    super(`${problem}. Expected https://host/path, http://host/path, ssh://user@host/path, user@host:path or /path`)
  }
}

/** The server has no repository at this URL, or doesn't show it without other credentials. */
export class RepositoryNotFound extends SourceProblem {
  override readonly name = 'RepositoryNotFound'
  constructor(
    readonly url: string,
    /** The server's answer, in words. */
    readonly seen: string,
    /** The access that the token needs. */
    readonly needs: string,
  ) {
    super(`${url}: not found (${seen}). It was moved or deleted, or it is private and the token can't see it: ${needs}`)
  }
}

/** The server refuses the credentials, or asks for some. */
export class AccessDenied extends SourceProblem {
  override readonly name = 'AccessDenied'
  constructor(
    readonly url: string,
    /** The server's answer, in words: `GitLab 401 Unauthorized`. */
    readonly seen: string,
    /** The access that the token needs. */
    readonly needs: string,
  ) {
    super(`${url}: ${seen}: ${needs}`)
  }
}

/** A repository without a commit. */
export class EmptyRepository extends SourceProblem {
  override readonly name = 'EmptyRepository'
  constructor(readonly url: string) {
    super(`${url}: the repository is empty: push a first commit, then sync again`)
  }
}

/** The number of branches that an error lists. */
export const SHOWN_BRANCHES = 20

/** A branch that the repository hasn't. */
export class NoSuchBranch extends SourceProblem {
  override readonly name = 'NoSuchBranch'
  constructor(
    readonly url: string,
    /** The branch that was asked for; undefined: the default branch, which points to nothing. */
    readonly branch: string | undefined,
    /** The first branches that there are. */
    readonly branches: readonly string[],
    /** The number of branches, if it is known to be higher. */
    readonly total = branches.length,
  ) {
    const more = total > branches.length ? ` and ${total - branches.length} more` : ''
    const there = branches.length === 0 ? 'it has none' : `there are: ${branches.join(', ')}${more}`
    super(`${url}: ${branch === undefined ? 'no default branch' : `no branch ${JSON.stringify(branch)}`}; ${there}`)
  }
}

/** A commit that the server no longer gives out, for example after a force-push: list the branch again. */
export class CommitGone extends Error {
  override readonly name = 'CommitGone'
  constructor(
    readonly url: string,
    readonly commit: string,
  ) {
    super(`${url}: commit ${commit} is gone: the branch was rewritten. The next listing starts from its new head`)
  }
}

/** A machine without git. */
export class MissingGit extends SourceProblem {
  override readonly name = 'MissingGit'
  constructor(options?: ErrorOptions) {
    super("git isn't installed: install git 2.31 or later, or give a GitLab repository the source 'gitlab'", options)
  }
}
