import { MissingPackage, requirePackages, type Settings } from '../../../config/index.js'
import type { Logger } from '../../../phases/index.js'
import type { Workspace } from '../../workspace.js'
import { type ProbeSources, probeRoutes } from './probes.js'
import { questionRoutes } from './questions.js'
import { type HttpServer, serveRoutes } from './server.js'

/**
 * The web server of `phaselock start --http`: probes, metrics and, with `--answer-tokens`, the inbox of questions.
 * @throws CliError when the port is taken, or for a file of tokens that can't be used
 */
export async function serveHttp(
  workspace: Workspace,
  sources: ProbeSources,
  settings: Settings,
  logger: Logger,
): Promise<HttpServer> {
  const routes = { ...probeRoutes(sources), ...(await questionRoutes(workspace, settings)) }
  return serveRoutes(routes, settings, logger)
}

/** True if `/metrics` can be served; otherwise the log has the npm line that it takes. */
export function hasMetrics(logger: Logger): boolean {
  try {
    requirePackages('/metrics', ['prom-client'])
    return true
  } catch (error) {
    if (!(error instanceof MissingPackage)) throw error
    logger.warn(error.message)
    return false
  }
}
