import type { Latency } from './timing.js'

/** With watches; without them a document goes on at the end of its pause. */
const QUICK_MS = 200

/** What `--kubernetes --json` prints. */
export interface KubernetesDemoResult {
  readonly documents: number
  readonly domains: number
  readonly instances: number
  /** Objects that the handlers made. */
  readonly objects: number
  /** Documents that did not come to Deleted. */
  readonly lost: number
  /** Objects that were made again though they should have been made once. */
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
  /** Each figure that is off: which, what was expected, what it is. Empty: all as it should be. */
  readonly off: readonly string[]
  /** The same for times, which a busy machine makes longer: they don't change the exit code. */
  readonly slow: readonly string[]
}

type Measured = Omit<KubernetesDemoResult, 'off' | 'slow'>

export function judged(measured: Measured): KubernetesDemoResult {
  const off = (['lost', 'madeTwice', 'leftOver'] as const)
    .filter((figure) => measured[figure] !== 0)
    .map((figure) => `${figure}: expected 0, got ${measured[figure]}`)
  if (measured.leasesAtKill === 0) off.push('leasesAtKill: expected >= 1, got 0')
  const { withWatches, withoutWatches } = measured.readyToCreatedMs
  if (!withWatches || !withoutWatches) off.push('readyToCreatedMs: expected times, got none')
  const slow =
    withWatches && withWatches.p95 > QUICK_MS
      ? [`readyToCreatedMs.withWatches.p95: expected <= ${QUICK_MS}, got ${withWatches.p95}`]
      : []
  return { ...measured, off, slow }
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
  const isOff = (figure: string) => result.off.some((line) => line.startsWith(`${figure}:`))
  const line = (mark: string, value: string, text: string) => `${mark} ${value.padStart(8)}  ${text}`
  const { withWatches, withoutWatches } = result.readyToCreatedMs
  const times = [
    ['with watches', withWatches],
    ['without them', withoutWatches],
  ] as const
  return [
    ...LINES.map(([figure, text]) => line(isOff(figure) ? ' ✗' : '  ', String(result[figure]), text)),
    ...times.flatMap(([how, latency]) => [
      line('  ', String(latency?.p50 ?? '-'), `ms from a certificate's Ready to Created, ${how}: half of them`),
      line('  ', String(latency?.p95 ?? '-'), 'ms: 95 of 100'),
    ]),
    '',
    ...(result.off.length === 0
      ? [`On Kubernetes ${result.kubernetes}: everything made once, everything gone at the end.`]
      : ['Off:', ...result.off.map((text) => `  ${text}`)]),
    ...result.slow.map((text) => `Slow: ${text}`),
    ...evidence.map((text) => `    ${text}`),
    '',
  ].join('\n')
}
