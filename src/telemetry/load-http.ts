import { requirePackages } from './missing-package.js'

/** What the web server needs. */
export const HTTP_PACKAGES: readonly string[] = [
  '@nestjs/common',
  '@nestjs/core',
  '@nestjs/platform-express',
  '@nestjs/terminus',
  'reflect-metadata',
  'rxjs',
]

/**
 * The Nest module with `/livez`, `/readyz` and `/metrics`. It, terminus and the web server are loaded by this call only.
 * @throws MissingPackage with the npm line to run, when one of Nest's packages isn't installed
 */
export async function loadTelemetryHttp(): Promise<typeof import('./http/index.js')> {
  requirePackages('the web server (--http)', HTTP_PACKAGES)
  return await import('./http/index.js')
}
