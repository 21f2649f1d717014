import type { AddressInfo } from 'node:net'
import {
  type ArgumentsHost,
  BadRequestException,
  Catch,
  type DynamicModule,
  type ExceptionFilter,
  type INestApplication,
} from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import type { Settings } from '../../config/index.js'
import {
  loadQuestionsHttp,
  loadTelemetryHttp,
  PhaselockModule,
  type QuestionsHttpRequest,
  type TelemetrySources,
} from '../../nest/index.js'
import { type Logger, Replica, type ReplicaObserver } from '../../phases/index.js'
import { replicaMetrics } from '../../telemetry/index.js'
import { CliError, EXIT } from '../errors.js'
import type { Workspace } from '../workspace.js'
import { AnswerTokens } from './answer-tokens.js'
import { nestLog } from './console-lines.js'
import { type RunningReplica, replicaOptions, transitionsOf } from './options.js'

class ReplicaApp {}

/** Refuses a body that isn't JSON before it reaches any controller, in the same form as all other refusals. */
class MalformedJson implements ExceptionFilter<BadRequestException> {
  catch({ message }: BadRequestException, host: ArgumentsHost): void {
    const body = { statusCode: 400, error: 'invalidRequest', message: `expected a body in JSON: ${message}` }
    host.switchToHttp().getResponse().status(400).json(body)
  }
}
Catch(BadRequestException)(MalformedJson)

/**
 * Boots the Nest application that runs one replica and its web server.
 * @throws CliError when the port is taken, MissingPackage and what PhaselockModule throws
 */
export async function bootApp(
  workspace: Workspace,
  settings: Settings,
  logger: Logger,
  observers: readonly ReplicaObserver[] = [],
): Promise<RunningReplica> {
  const { connection, lifecycles } = workspace
  const metrics = replicaMetrics({ db: connection.db, lifecycles, logger })
  let replica: Replica | undefined
  const imports: DynamicModule[] = [
    ScheduleModule.forRoot(),
    PhaselockModule.forRoot({
      connection,
      lifecycles,
      ...(await replicaOptions(settings)),
      // The settings have been read; only named locks still look for their own.
      env: {},
      locks: { env: process.env },
      logger,
      observer: [metrics.observer, ...transitionsOf(settings, connection, logger), ...observers],
    }),
    ...(await http(workspace, settings, {
      registry: metrics.registry,
      notReady: () => replica?.status().notReady ?? ['starting'],
      paused: () => replica?.status().paused.map(({ text }) => text) ?? [],
      problems: () => replica?.status().problems ?? [],
    })),
  ]
  const app = await create(imports, logger)
  const running = app.get(Replica)
  replica = running
  metrics.watch(running)
  return { replica: running, http: await listen(app, settings), metrics, stop: () => app.close() }
}

/**
 * The web server alone, for replicas that run in other processes.
 * @throws CliError when the port is taken, MissingPackage
 */
export async function serveHttp(
  workspace: Workspace,
  sources: TelemetrySources,
  settings: Settings,
  logger: Logger,
): Promise<{ http: string; close(): Promise<void> }> {
  const app = await create(await http(workspace, settings, sources), logger)
  return { http: await listen(app, settings), close: () => app.close() }
}

/** The modules of the web server. @throws CliError for a file of tokens that can't be used */
async function http(
  { connection, lifecycles }: Workspace,
  { answerTokens, auditFor, doorbell }: Settings,
  sources: TelemetrySources,
): Promise<DynamicModule[]> {
  const { TelemetryHttpModule } = await loadTelemetryHttp()
  const telemetry = TelemetryHttpModule.forRoot(sources)
  if (answerTokens === undefined) return [telemetry]
  const { QuestionsHttpModule } = await loadQuestionsHttp()
  const tokens = await AnswerTokens.of(answerTokens)
  const by = ({ headers }: QuestionsHttpRequest) => tokens.nameOf(String(headers['authorization']))
  return [
    telemetry,
    QuestionsHttpModule.forRoot({ db: connection.db, lifecycles, by, auditFor: `${auditFor}ms`, doorbell }),
  ]
}

async function create(imports: DynamicModule[], logger: Logger): Promise<INestApplication> {
  const options = { logger: nestLog(logger), abortOnError: false }
  const app = await NestFactory.create({ module: ReplicaApp, imports }, options)
  return app.useGlobalFilters(new MalformedJson())
}

async function listen(app: INestApplication, { http: port = 0, httpHost }: Settings): Promise<string> {
  try {
    await app.listen(port, httpHost)
  } catch (error) {
    await app.close()
    const { code, message } = error as NodeJS.ErrnoException
    const reason = code === 'EADDRINUSE' ? 'a port that is in use' : message
    const problem = `expected to listen on ${httpHost}:${port}, got ${reason}`
    const advice = 'choose another --http port (0: any free one) or --http-host'
    throw new CliError('PortUnavailable', EXIT.failure, `${problem}; ${advice}`)
  }
  const address = app.getHttpServer().address() as AddressInfo
  const host = ['0.0.0.0', '::'].includes(address.address) ? 'localhost' : address.address
  return `http://${host.includes(':') ? `[${host}]` : host}:${address.port}`
}
