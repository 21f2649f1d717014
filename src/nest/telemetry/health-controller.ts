import { Controller, Get, Header, Inject } from '@nestjs/common'
import { type HealthCheckResult, HealthCheckService, HealthIndicatorService } from '@nestjs/terminus'
import { TELEMETRY_SOURCES, type TelemetrySources } from './sources.js'

/** For Kubernetes' probes. Liveness says only that the process answers: a database that is down is no reason to restart. */
@Controller()
export class HealthController {
  constructor(
    @Inject(HealthCheckService) private readonly health: HealthCheckService,
    @Inject(HealthIndicatorService) private readonly indicators: HealthIndicatorService,
    @Inject(TELEMETRY_SOURCES) private readonly sources: TelemetrySources,
  ) {}

  @Get('livez')
  @Header('Cache-Control', 'no-store')
  livez(): Promise<HealthCheckResult> {
    return this.health.check([])
  }

  /** 503 with the reasons while the replica isn't ready: not started, stopping, no database, too many abandoned handlers. */
  @Get('readyz')
  @Header('Cache-Control', 'no-store')
  readyz(): Promise<HealthCheckResult> {
    return this.health.check([
      async () => {
        const reasons = await this.sources.notReady()
        const replica = this.indicators.check('replica')
        return reasons.length === 0 ? replica.up() : replica.down({ reasons: [...reasons] })
      },
    ])
  }
}
