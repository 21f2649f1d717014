import { figureLines, type Judgement, judge, slowness, verdictText } from '../proof/judgement.ts'
import type { Latency } from './timing.ts'

/** The limit with watches; without them a document goes on at the end of its pause. */
const QUICK_MS = 200

/** What `--kubernetes --json` prints. */
export interface KubernetesDemoResult extends Judgement {
  readonly documents: number
  readonly domains: number
  readonly instances: number
  /** Objects that the handlers made. */
  readonly objects: number
  /** Documents that did not reach Deleted. */
  readonly lost: number
  /** Objects that were made again though they should have been made only once. */
  readonly madeTwice: number
  /** Objects in the cluster when all documents are deleted. */
  readonly leftOver: number
  /** Leases held at the `kill -9`. */
  readonly leasesAtKill: number
  /** From a certificate's Ready to its domain's Created. */
  readonly readyToCreatedMs: { readonly withWatches: Latency | null; readonly withoutWatches: Latency | null }
  /** The API server's version. */
  readonly kubernetes: string
  readonly lockTimeoutSeconds: number
  readonly seconds: number
}

/** The other figures may also mean that the time was not enough. */
const SAFETY = ['madeTwice']

type Measured = Omit<KubernetesDemoResult, keyof Judgement>

export function judged(measured: Measured, slowed: number = slowness()): KubernetesDemoResult {
  const lines = (['lost', 'madeTwice', 'leftOver'] as const)
    .filter((figure) => measured[figure] !== 0)
    .map((figure) => `${figure}: expected 0, got ${measured[figure]}`)
  const { withWatches, withoutWatches } = measured.readyToCreatedMs
  const missing = [
    ...(measured.leasesAtKill === 0 ? ['leasesAtKill: expected >= 1, got 0'] : []),
    ...(!withWatches || !withoutWatches ? ['readyToCreatedMs: expected times, got none'] : []),
  ]
  const slow =
    withWatches && withWatches.p95 > QUICK_MS
      ? [`readyToCreatedMs.withWatches.p95: expected <= ${QUICK_MS}, got ${withWatches.p95}`]
      : []
  return { ...measured, ...judge(lines, { safety: SAFETY, missing, slowness: slowed }), slow }
}

const LINES: readonly (readonly [keyof Measured, string])[] = [
  ['domains', 'domains, each with a certificate and an Ingress'],
  ['instances', 'instances, each with a Deployment and a Service'],
  ['objects', 'objects made for them'],
  ['lost', 'documents that did not come to their end'],
  ['madeTwice', 'objects made more than once'],
  ['leftOver', 'objects left in the cluster at the end'],
  ['leasesAtKill', 'leases held at the kill -9'],
  ['lockTimeoutSeconds', 'seconds: the lock timeout'],
  ['seconds', 'seconds: the whole demo'],
]

/** The report for people. */
export function kubernetesReportText(result: KubernetesDemoResult, evidence: readonly string[]): string {
  const line = (value: string, text: string) => `   ${value.padStart(8)}  ${text}`
  const { withWatches, withoutWatches } = result.readyToCreatedMs
  const times = [
    ['with watches', withWatches],
    ['without them', withoutWatches],
  ] as const
  return [
    ...figureLines(LINES, result),
    ...times.flatMap(([how, latency]) => [
      line(String(latency?.p50 ?? '-'), `ms from a certificate's Ready to Created, ${how}: half of them`),
      line(String(latency?.p95 ?? '-'), 'ms: 95 of 100'),
    ]),
    '',
    ...verdictText(result, [`On Kubernetes ${result.kubernetes}: everything made once, everything gone at the end.`]),
    ...evidence.map((text) => `    ${text}`),
    '',
  ].join('\n')
}
