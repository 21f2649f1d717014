export { type Credentials, type CredentialsOptions, fixedToken, noCredentials } from './credentials.js'
export {
  AccessDenied,
  CommitGone,
  EmptyRepository,
  MissingGit,
  NoSuchBranch,
  RepositoryNotFound,
  SourceProblem,
  UnsafeUrl,
} from './errors.js'
export { GitCache, type GitCacheOptions, type HeldRepository } from './git/git-cache.js'
export { type GitSourceSettings, gitSource } from './git/git-source.js'
export { GitFailed } from './git/run-git.js'
export { type GitlabSourceSettings, gitlabSource } from './gitlab/gitlab-source.js'
export { type LoginsOf, loginCredentials } from './login-credentials.js'
export type { SourceSettings } from './settings.js'
export type { Blob, Head, Source, SourceOptions, TreeEntry } from './source.js'
export { isBranchName, isSourceProblem, type SourceUrl, sourceUrl } from './url.js'
