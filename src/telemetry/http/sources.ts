import type { Registry } from 'prom-client'

/** What the web server shows. */
export interface TelemetrySources {
  readonly registry: Registry
  /** Why this replica isn't ready; empty when it is. */
  readonly notReady: () => readonly string[]
}

export const TELEMETRY_SOURCES = Symbol.for('phaselock:telemetry-sources')
