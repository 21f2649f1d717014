import { type DynamicModule, Module } from '@nestjs/common'
import { TerminusModule } from '@nestjs/terminus'
import { HealthController } from './health-controller.js'
import { MetricsController } from './metrics-controller.js'
import { TELEMETRY_SOURCES, type TelemetrySources } from './sources.js'

/** `/livez`, `/readyz` and `/metrics` for a Nest app with an HTTP platform. */
@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: the shape of a dynamic module
export class TelemetryHttpModule {
  static forRoot(sources: TelemetrySources): DynamicModule {
    return {
      module: TelemetryHttpModule,
      imports: [TerminusModule.forRoot({ logger: false })],
      controllers: [HealthController, MetricsController],
      providers: [{ provide: TELEMETRY_SOURCES, useValue: sources }],
    }
  }
}
