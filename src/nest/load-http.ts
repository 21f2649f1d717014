import { requirePackages } from '../config/index.js'

/** The packages that the module with `/livez`, `/readyz` and `/metrics` needs. */
const HTTP_PACKAGES: readonly string[] = [
  '@nestjs/common',
  '@nestjs/core',
  '@nestjs/platform-express',
  '@nestjs/terminus',
  'prom-client',
  'reflect-metadata',
  'rxjs',
]

/**
 * Loads the Nest module with `/livez`, `/readyz` and `/metrics`. Only this call loads it, terminus and the web server.
 * @throws MissingPackage with the npm line to run, if one of Nest's packages isn't installed
 */
export async function loadTelemetryHttp(): Promise<typeof import('./telemetry-http.js')> {
  requirePackages('the web server (--http)', HTTP_PACKAGES)
  return await import('./telemetry-http.js')
}

/** Loads the Nest module with `/questions`. @example const { QuestionsHttpModule } = await loadQuestionsHttp() */
export async function loadQuestionsHttp(): Promise<typeof import('./questions-http.js')> {
  return await import('./questions-http.js')
}
