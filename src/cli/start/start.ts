import type { Settings } from '../../config/index.js'
import type { Logger } from '../../phases/index.js'
import { requirePackages } from '../../telemetry/index.js'
import type { CliContext } from '../context.js'
import { packageVersion } from '../package-version.js'
import { openWorkspace } from '../workspace.js'
import { printBanner } from './banner.js'
import { consoleToLog } from './console-lines.js'
import { StopSignals } from './stop-signals.js'

export interface StartOptions extends CliContext {
  readonly settings: Settings
  readonly logger: Logger
  readonly json: boolean
}

const PACKAGES = ['@nestjs/common', '@nestjs/core', '@nestjs/schedule', 'reflect-metadata', 'rxjs']

/**
 * Runs one replica until it is asked to stop, and stops it in order (docs/lock-protocol.md, shutdown). Resolves when all is
 * closed; a stop before it has begun to work ends it at once.
 */
export async function start(options: StartOptions): Promise<void> {
  const { logger, output } = options
  requirePackages('phaselock start', PACKAGES)
  consoleToLog(logger)
  const signals = new StopSignals(logger).listen().watchParent(options.env)
  process.on('unhandledRejection', (error) =>
    logger.error(`a promise was rejected and nobody looked: ${String(error)}; some handler doesn't await it`, {
      error,
    }),
  )
  const running = await Promise.race([run(options), signals.stopped])
  if (typeof running === 'string') return
  await signals.stopped
  await running.stop()
  if (!options.json) output.line('stopped')
}

async function run(options: StartOptions): Promise<{ stop(): Promise<void> }> {
  const { settings, logger, output } = options
  const workspace = await openWorkspace(options)
  try {
    const { bootApp } = await import('./app.js')
    const app = await bootApp(workspace, settings, logger)
    const started = {
      version: await packageVersion(),
      identity: app.replica.identity,
      connection: workspace.connection,
      models: workspace.lifecycles.map((lifecycle) => lifecycle.model),
      http: app.http,
    }
    printBanner(output, started, options.json)
    const stop = async () => {
      await app.close()
      await workspace.close()
      const left = app.replica.status().held
      const note = left > 0 ? `; ${left} documents keep their leases: their steps had not ended` : ''
      logger.info(`stopped${note}`)
    }
    return { stop }
  } catch (error) {
    await workspace.close()
    throw error
  }
}
