import type { HttpAnswer, HttpRoutes } from './server.js'

/** The sources of the answers to Kubernetes' probes and to Prometheus. */
export interface ProbeSources {
  /** The metrics; undefined: `prom-client` isn't installed. */
  readonly registry?: { metrics(): Promise<string> } | undefined
  /** Returns the reasons why this replica (or one of its workers) isn't ready; empty if it is. */
  readonly notReady: () => readonly string[] | Promise<readonly string[]>
  /** Returns in words what people have paused: the replica is ready all the same. */
  readonly paused: () => readonly string[] | Promise<readonly string[]>
  /** Returns the problems of background work: the replica is ready all the same. */
  readonly problems: () => readonly string[] | Promise<readonly string[]>
}

/** The type of Prometheus' text format. */
const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** `/livez`, `/readyz` and `/metrics`; the first two answer in the form of `@nestjs/terminus`, as a Nest app does. */
export function probeRoutes({ registry, notReady, paused, problems }: ProbeSources): HttpRoutes {
  return {
    // Only that the process answers: a database that is down is no reason to restart.
    'GET /livez': async () => health(true, {}),
    'GET /readyz': async () => {
      const reasons = await notReady()
      const also = Object.entries({ paused: await paused(), problems: await problems() }).filter(
        ([, said]) => said.length > 0,
      )
      const isReady = reasons.length === 0
      const status = isReady ? { status: 'up' } : { status: 'down', reasons }
      return health(isReady, { replica: { ...status, ...Object.fromEntries(also) } })
    },
    'GET /metrics': async () => {
      if (registry) return { status: 200, type: METRICS_TYPE, body: await registry.metrics() }
      const message = 'metrics need prom-client, not installed here; run: npm install prom-client'
      return { status: 501, body: { statusCode: 501, error: 'missingPackage', message } }
    },
  }
}

const health = (isOk: boolean, details: object): HttpAnswer => ({
  status: isOk ? 200 : 503,
  body: { status: isOk ? 'ok' : 'error', info: isOk ? details : {}, error: isOk ? {} : details, details },
})
