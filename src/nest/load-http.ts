import { HTTP_PACKAGES, requirePackages } from '../config/index.js'

/**
 * The Nest module with `/livez`, `/readyz` and `/metrics`. It, terminus and the web server are loaded by this call only.
 * @throws MissingPackage with the npm line to run, when one of Nest's packages isn't installed
 */
export async function loadTelemetryHttp(): Promise<typeof import('./telemetry-http.js')> {
  requirePackages('the web server (--http)', HTTP_PACKAGES)
  return await import('./telemetry-http.js')
}

/** The Nest module with `/questions`, which this call loads. @example const { QuestionsHttpModule } = await loadQuestionsHttp() */
export async function loadQuestionsHttp(): Promise<typeof import('./questions-http.js')> {
  return await import('./questions-http.js')
}
