/** What the web server shows. */
export interface TelemetrySources {
  readonly registry: { metrics(): Promise<string> }
  /** Why this replica (or one of its workers) isn't ready; empty when it is. */
  readonly notReady: () => readonly string[] | Promise<readonly string[]>
}

export const TELEMETRY_SOURCES = Symbol.for('phaselock:telemetry-sources')
