import type { AddressInfo } from 'node:net'
import type { DynamicModule, INestApplication, INestApplicationContext } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import type { Settings } from '../../config/index.js'
import { loadTelemetryHttp, PhaselockModule, type TelemetrySources } from '../../nest/index.js'
import { type Logger, Replica } from '../../phases/index.js'
import { type ReplicaMetrics, replicaMetrics } from '../../telemetry/index.js'
import { PortUnavailable } from '../errors.js'
import type { Workspace } from '../workspace.js'
import { nestLog } from './nest-log.js'
import { replicaOptions } from './replica-options.js'

/** A running replica, and its orderly shutdown: its steps, the web server, its connections for renewals. */
export interface RunningApp {
  readonly replica: Replica
  /** `http://host:port` when the web server runs. */
  readonly http: string | undefined
  readonly metrics: ReplicaMetrics | undefined
  close(): Promise<void>
}

class ReplicaApp {}

/**
 * Boots the Nest application that runs one replica; with `settings.http` also its web server.
 * @throws PortUnavailable, MissingPackage and what PhaselockModule throws
 */
export async function bootApp(
  workspace: Workspace,
  settings: Settings,
  logger: Logger,
  { measured = false }: { readonly measured?: boolean } = {},
): Promise<RunningApp> {
  const { connection, lifecycles } = workspace
  const serves = settings.http !== undefined
  const about = { db: connection.db, lifecycles, logger, documents: serves }
  const metrics = serves || measured ? replicaMetrics(about) : undefined
  let replica: Replica | undefined
  const imports: DynamicModule[] = [
    ScheduleModule.forRoot(),
    PhaselockModule.forRoot({
      connection,
      lifecycles,
      ...(await replicaOptions(settings)),
      logger,
      observer: metrics?.observer,
    }),
  ]
  if (metrics && serves) {
    const notReady = () => replica?.status().notReady ?? ['starting']
    imports.push(await telemetry({ registry: metrics.registry, notReady }))
  }
  const root: DynamicModule = { module: ReplicaApp, imports }
  const options = { logger: nestLog(logger), abortOnError: false }
  const app = serves
    ? await NestFactory.create(root, options)
    : await NestFactory.createApplicationContext(root, options)
  const running = app.get(Replica)
  replica = running
  metrics?.watch(running)
  const http = isServer(app) ? await listen(app, settings) : undefined
  return { replica: running, http, metrics, close: () => app.close() }
}

/**
 * The web server alone, for replicas that run in other processes.
 * @throws PortUnavailable, MissingPackage
 */
export async function serveTelemetry(
  sources: TelemetrySources,
  settings: Settings,
  logger: Logger,
): Promise<{ http: string; close(): Promise<void> }> {
  const root: DynamicModule = { module: ReplicaApp, imports: [await telemetry(sources)] }
  const app = await NestFactory.create(root, { logger: nestLog(logger), abortOnError: false })
  return { http: await listen(app, settings), close: () => app.close() }
}

async function telemetry(sources: TelemetrySources): Promise<DynamicModule> {
  const { TelemetryHttpModule } = await loadTelemetryHttp()
  return TelemetryHttpModule.forRoot(sources)
}

const isServer = (app: INestApplicationContext): app is INestApplication => 'listen' in app

async function listen(app: INestApplication, { http: port = 0, httpHost }: Settings): Promise<string> {
  try {
    await app.listen(port, httpHost)
  } catch (error) {
    await app.close()
    const { code, message } = error as NodeJS.ErrnoException
    throw new PortUnavailable(httpHost, port, code === 'EADDRINUSE' ? 'a port that is in use' : message)
  }
  const address = app.getHttpServer().address() as AddressInfo
  const host = ['0.0.0.0', '::'].includes(address.address) ? 'localhost' : address.address
  return `http://${host.includes(':') ? `[${host}]` : host}:${address.port}`
}
