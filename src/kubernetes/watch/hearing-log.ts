import type { Logger } from '../../phases/index.js'
import { KubernetesError } from '../api/errors.js'

/** Failures in a row that are worth a warning; the restart of an API server isn't. */
const PATIENCE = 3

/**
 * Logs once that objects of a cluster aren't watched and why, and once that they are watched again. Refusals by the server are logged for each
 * kind, an unreachable server once for the cluster.
 */
export class HearingLog {
  /** Kinds, in words, that the server refuses. `failing`: kinds that fail, with the number of failures in a row. */
  private readonly refused = new Set<string>()
  private readonly failing = new Map<string, number>()
  private isReported = false

  constructor(
    private readonly lifecycle: string,
    private readonly cluster: string,
    private readonly logger: Logger,
  ) {}

  heard(kind: string): void {
    if (this.refused.delete(kind))
      this.logger.info(`${this.lifecycle}: ${kind} of cluster ${this.cluster} is watched now`)
    this.failing.delete(kind)
    if (!this.isReported || this.failing.size > 0) return
    this.isReported = false
    this.logger.info(`${this.lifecycle}: cluster ${this.cluster} is watched again`)
  }

  failed(kind: string, error: unknown): void {
    const message = error instanceof Error ? error.message : String(error)
    const then = 'documents that wait for it go on at the end of their pauses'
    if (error instanceof KubernetesError) {
      if (this.refused.has(kind)) return
      this.refused.add(kind)
      this.logger.warn(`${this.lifecycle}: ${kind} of cluster ${this.cluster} is not watched, ${then}: ${message}`)
      return
    }
    const failures = (this.failing.get(kind) ?? 0) + 1
    this.failing.set(kind, failures)
    if (this.isReported || failures < PATIENCE) return
    this.isReported = true
    this.logger.warn(`${this.lifecycle}: cluster ${this.cluster} is not watched, ${then}: ${message}`)
  }
}
