export type { TelemetrySources } from './sources.js'
export { TelemetryHttpModule } from './telemetry-http-module.js'
