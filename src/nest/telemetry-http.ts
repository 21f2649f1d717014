import { Controller, type DynamicModule, Get, Header, Inject, Module } from '@nestjs/common'
import { type HealthCheckResult, HealthCheckService, HealthIndicatorService, TerminusModule } from '@nestjs/terminus'
import { Registry } from 'prom-client'
import { checkOptions, t } from '../options/index.js'

/** The sources of the web server's answers. */
export interface TelemetrySources {
  /** The content of `/metrics`: `replicaMetrics(...).registry`, or your own Registry of prom-client. */
  readonly registry: {
    /** Returns the text for Prometheus, generated for each scrape. */
    metrics(): Promise<string>
  }
  /** Returns the reasons why this replica (or one of its workers) isn't ready; empty if it is. */
  readonly notReady: () => readonly string[] | Promise<readonly string[]>
  /** Returns in words what users have paused: a replica that waits for them is ready all the same. Default: pauses aren't shown. */
  readonly paused?: () => readonly string[] | Promise<readonly string[]>
  /** Returns the problems of background work: the replica is ready all the same. Default: none is shown. */
  readonly problems?: () => readonly string[] | Promise<readonly string[]>
}

const telemetrySources = t.object({
  registry: t.having(['metrics'], 'a registry of prom-client'),
  notReady: t.aFunction('a function that returns the reasons'),
  paused: t.optional(t.aFunction()),
  problems: t.optional(t.aFunction()),
})

const TELEMETRY_SOURCES = Symbol.for('phaselock:telemetry-sources')

/** The endpoints for Kubernetes' probes and Prometheus. */
@Controller()
class TelemetryController {
  constructor(
    @Inject(HealthCheckService) private readonly health: HealthCheckService,
    @Inject(HealthIndicatorService) private readonly indicators: HealthIndicatorService,
    @Inject(TELEMETRY_SOURCES) private readonly sources: TelemetrySources,
  ) {}

  /** Reports only that the process answers: a database that is down is no reason to restart. */
  @Get('livez')
  @Header('Cache-Control', 'no-store')
  livez(): Promise<HealthCheckResult> {
    return this.health.check([])
  }

  /** Responds with 503 and the reasons while the replica isn't ready: not started, stopping, no database, too many abandoned handlers. */
  @Get('readyz')
  @Header('Cache-Control', 'no-store')
  readyz(): Promise<HealthCheckResult> {
    return this.health.check([
      async () => {
        const reasons = await this.sources.notReady()
        const replica = this.indicators.check('replica')
        const paused = [...((await this.sources.paused?.()) ?? [])]
        const problems = [...((await this.sources.problems?.()) ?? [])]
        const also = { ...(paused.length > 0 && { paused }), ...(problems.length > 0 && { problems }) }
        return reasons.length > 0 ? replica.down({ reasons: [...reasons], ...also }) : replica.up(also)
      },
    ])
  }

  @Get('metrics')
  @Header('Content-Type', Registry.PROMETHEUS_CONTENT_TYPE)
  metrics(): Promise<string> {
    return this.sources.registry.metrics()
  }
}

/** `/livez`, `/readyz` and `/metrics` for a Nest app with an HTTP platform. */
@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: the shape of a dynamic module
export class TelemetryHttpModule {
  /** @throws InvalidOptions */
  static forRoot(sources: TelemetrySources): DynamicModule {
    checkOptions('TelemetryHttpModule.forRoot', telemetrySources, sources)
    return {
      module: TelemetryHttpModule,
      imports: [TerminusModule.forRoot({ logger: false })],
      controllers: [TelemetryController],
      providers: [{ provide: TELEMETRY_SOURCES, useValue: sources }],
    }
  }
}
