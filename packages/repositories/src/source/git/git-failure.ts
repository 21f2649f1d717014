import { Unavailable } from 'phaselock'
import { TokenRefused } from '../credentials.js'
import { AccessDenied, RepositoryNotFound } from '../errors.js'
import { GitFailed } from './run-git.js'

const READ = 'the token needs read_repository (GitLab) or contents: read (GitHub)'

/** The meanings of git's messages. The first that matches counts. */
const MEANINGS: readonly (readonly [RegExp, (url: string, seen: string) => Error])[] = [
  [/returned error: 30\d|unable to update url base from redirection/i, (url, seen) => moved(url, seen)],
  [
    /Authentication failed|could not read (Username|Password)|returned error: 401|HTTP Basic: Access denied/i,
    (url, seen) => new TokenRefused(new AccessDenied(url, `401 Unauthorized (${seen})`, READ)),
  ],
  [/returned error: 403/i, (url, seen) => new AccessDenied(url, `403 Forbidden (${seen})`, READ)],
  [/returned error: (429|5\d\d)/i, (url, seen) => new Unavailable(`${url}: ${seen}`)],
  [/returned error: 404|repository '.*' not found/i, (url, seen) => new RepositoryNotFound(url, seen, READ)],
  [
    /Permission denied|Host key verification failed/i,
    (url, seen) =>
      new AccessDenied(url, seen, "give this process's ssh key the right to read it, and its host the server's key"),
  ],
  [
    /dubious ownership/i,
    (url, seen) => new AccessDenied(url, seen, 'the folder belongs to another user than this process'),
  ],
  [
    /does not appear to be a git repository|does not exist|not a git repository/i,
    (url, seen) => new RepositoryNotFound(url, seen, 'check the path'),
  ],
  [
    /Could not resolve|Failed to connect|Couldn't connect|Connection (refused|reset|timed out|closed)|timed? ?out|early EOF|unexpected disconnect|RPC failed|hung up|Empty reply|Operation too slow|SSL|gnutls|transfer closed|Network is unreachable|No route to host/i,
    (url, seen) => new Unavailable(`${url}: ${seen}`),
  ],
]

const moved = (url: string, seen: string): Error =>
  new RepositoryNotFound(
    url,
    seen,
    'the server redirects, which a request with a token never follows: register the new URL',
  )

/** The error that git's failure means, without the secrets that were in its environment. */
export function gitFailure(error: unknown, url: string, secrets: readonly string[]): unknown {
  if (!(error instanceof GitFailed)) return error
  const stderr = secrets.reduce((text, secret) => text.replaceAll(secret, '***'), error.stderr)
  const safe = new GitFailed(error.command, error.code, stderr)
  if (isCommitRefused(safe)) return safe
  const seen = safe.message
  // Without the URL: it may contain anything, such as `ssl`.
  const said = stderr.replaceAll(url, '')
  for (const [pattern, meaning] of MEANINGS) if (pattern.test(said)) return meaning(url, seen)
  return safe
}

/** Checks if the server refuses to give out one commit, or no longer has it. */
export const isCommitRefused = (error: unknown): boolean =>
  error instanceof GitFailed &&
  /not our ref|unadvertised object|couldn't find remote ref|no such remote ref/i.test(error.stderr)
