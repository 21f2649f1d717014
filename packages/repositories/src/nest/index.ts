/**
 * Repositories in Nest apps, and for other services over HTTP (docs/repositories.md).
 *
 * @packageDocumentation
 */
export {
  RepositoriesHttpModule,
  type RepositoriesHttpRequest,
  type RepositoriesHttpSources,
  type RepositoriesHttpUse,
} from './repositories-http.js'
export {
  RepositoriesModule,
  type RepositoriesModuleAsyncOptions,
} from './repositories-module.js'
