import { availableParallelism, hostname } from 'node:os'
import type { Settings } from '../../../config/index.js'
import { openWorkspace, type Workspace } from '../../workspace.js'
import { printBanner } from '../banner.js'
import { hasMetrics, serveHttp } from '../http/index.js'
import type { HttpServer } from '../http/server.js'
import type { StartOptions } from '../options.js'
import { patiently } from '../patiently.js'
import { Crew } from './crew.js'
import type { WorkerConfig } from './worker-link.js'

/** The time beyond the grace for workers to finish writing and to close. */
const CLOSING_MS = 10_000

/** A working crew, and its orderly shutdown. */
export interface Supervisor {
  stop(): Promise<void>
  /** Ends it immediately: leases then expire. */
  kill(): void
}

/**
 * Starts `settings.workers` processes and watches over them. This process works on no documents: it holds the local
 * database open, serves `--http` for all of them, and passes signals on.
 * @param onCrew called with the crew before it works, so that a stop in the meantime reaches it
 * @throws CliError when a worker can't start or the port is taken; what a workspace throws
 */
export async function supervise(options: StartOptions, onCrew: (crew: Supervisor) => void): Promise<Supervisor> {
  const { settings, logger } = options
  const workspace = await patiently(settings, logger, (own) => openWorkspace({ ...options, settings: own }))
  const measured = settings.http !== undefined && hasMetrics(logger)
  const crew = new Crew({ workers: workersOf(options, measured), env: options.env, logger })
  const closing: (() => Promise<void>)[] = [() => workspace.connection.close()]
  const end = async (mostMs: number) => {
    await crew.stop(mostMs)
    for (const close of closing.toReversed()) await close()
  }
  const supervisor: Supervisor = {
    async stop() {
      await end(settings.grace + CLOSING_MS)
      logger.info('stopped')
    },
    kill: () => crew.kill(),
  }
  onCrew(supervisor)
  try {
    const server = settings.http === undefined ? undefined : await serve(workspace, options, crew, measured)
    if (server) closing.push(server.close)
    if (!(await crew.start())) return supervisor
    const identities = [...crew.working.values()].map((link) => link.identity!)
    await printBanner(options, workspace, { workers: identities, http: server?.http })
    return supervisor
  } catch (error) {
    crew.kill()
    await end(CLOSING_MS)
    throw error
  }
}

/** The configurations of the workers. All share the cores: unless the number of threads is set, each gets its share. */
function workersOf({ settings, cwd }: StartOptions, measured: boolean): { name: string; config: WorkerConfig }[] {
  const base = settings.name ?? `${hostname()}-${process.pid}`
  const threads = settings.threads ?? Math.max(1, Math.floor(availableParallelism() / settings.workers) - 1)
  const logFormat = settings.log ?? (process.stderr.isTTY ? 'pretty' : 'json')
  return Array.from({ length: settings.workers }, (_, i) => {
    const name = `${base}-${i + 1}`
    const own: Settings = { ...settings, name, threads, workers: 1, http: undefined }
    return { name, config: { settings: own, cwd, logFormat, measured } }
  })
}

async function serve(
  workspace: Workspace,
  { settings, logger }: StartOptions,
  crew: Crew,
  measured: boolean,
): Promise<HttpServer> {
  const { connection, lifecycles } = workspace
  const metrics = measured
    ? (await import('../../../telemetry/index.js')).workersMetrics({
        db: connection.db,
        lifecycles,
        logger,
        ofWorkers: () => crew.metrics(),
        counts: () => ({ wanted: crew.size, working: crew.working.size, restarts: crew.restarts }),
      })
    : undefined
  const sources = {
    registry: metrics,
    notReady: () => crew.notReady(),
    paused: () => crew.paused(),
    problems: () => crew.problems(),
  }
  return serveHttp(workspace, sources, settings, logger)
}
