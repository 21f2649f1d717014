import { Controller, Get, Header, Inject } from '@nestjs/common'
import { Registry } from 'prom-client'
import { TELEMETRY_SOURCES, type TelemetrySources } from './sources.js'

/** For Prometheus. */
@Controller()
export class MetricsController {
  constructor(@Inject(TELEMETRY_SOURCES) private readonly sources: TelemetrySources) {}

  @Get('metrics')
  @Header('Content-Type', Registry.PROMETHEUS_CONTENT_TYPE)
  metrics(): Promise<string> {
    return this.sources.registry.metrics()
  }
}
