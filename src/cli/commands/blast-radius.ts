import { type BlastRadius, countText, idText, type OperationPreview } from '../../operations/index.js'
import { formatMs } from '../../time/index.js'

/** The most groups that are shown to people. */
const MOST_GROUPS = 10

type Time = BlastRadius['time']

/**
 * What an operation would do, for people.
 * @example radiusLines(preview) // ['all 31 were looked at: 30 would be done, 1 left alone', ...]
 */
export function radiusLines({ count, radius }: OperationPreview): string[] {
  if (count === 0) return []
  return [
    headLine(count, radius),
    ...whyLines(radius),
    ...groupLines(radius),
    ...childLines(radius),
    ...timeLines(radius.time),
  ]
}

function headLine(count: number, { looked, sampledOf, done, unchanged, leftAlone }: BlastRadius): string {
  const n = (number: number) => countText({ n: number })
  const of = sampledOf !== null && sampledOf < count ? ` of the first ${n(sampledOf)}` : ''
  const what = sampledOf === null ? `all ${n(looked)} were looked at` : `a sample of ${n(looked)}${of} was looked at`
  const alone = leftAlone.reduce((sum, { documents }) => sum + documents.n, 0)
  const rest = [
    ...(unchanged.n > 0 ? [`${countText(unchanged)} need no change`] : []),
    ...(alone > 0 ? [`${countText({ ...leftAlone[0]!.documents, n: alone })} left alone`] : []),
  ]
  return `${what}: ${[`${countText(done)} would be done`, ...rest].join(', ')}`
}

const whyLines = ({ leftAlone }: BlastRadius): string[] =>
  leftAlone.map(
    ({ reason, documents, examples }) =>
      `  left alone ${countText(documents)}: ${reason} (${examples.map(idText).join(', ')}${documents.n > examples.length ? ', ...' : ''})`,
  )

function groupLines({ groups }: BlastRadius): string[] {
  const lines = groups.slice(0, MOST_GROUPS).map(({ phase, condition, cause, documents, done }) => {
    const because = cause ? `, ${cause.id} (${cause.text})` : ''
    return `  ${phase}, ${condition}${because}: ${countText(done)} of ${countText(documents)}`
  })
  return groups.length > MOST_GROUPS ? [...lines, `  and ${groups.length - MOST_GROUPS} more groups (--json)`] : lines
}

const childLines = ({ openChildren, unknownChildren }: BlastRadius): string[] => [
  ...openChildren.map(
    ({ lifecycle, parents, children }) =>
      `children: ${countText(parents)} of them have ${countText(children)} open ones of ${lifecycle}`,
  ),
  ...unknownChildren.map((lifecycle) => `children: whether any of ${lifecycle} are open is unknown here`),
]

function timeLines({ leastMs, watchesMs, phases, uncounted }: Time): string[] {
  const watched = watchesMs === null ? '' : `, and up to ${formatMs(watchesMs)} of watching`
  return [
    `takes ${formatMs(leastMs)} by its rate${watched}; longer if the database is slower`,
    ...(phases ?? []).flatMap(phaseLines),
    ...(phases === null ? ['then: which steps run is unknown'] : []),
    ...uncounted.map((name) => `the times leave out ${name}, a replica of an older version`),
  ]
}

function phaseLines({ phase, documents, flowMs, limits }: NonNullable<Time['phases']>[number]): string[] {
  const flow =
    flowMs === null
      ? 'unknown how long: none has left it in the last hour'
      : `${formatMs(flowMs)} at the rate of the last hour`
  return [
    `then ${countText(documents)} in ${phase}: ${flow}`,
    ...limits.map(
      ({ limit, ms, why }) => `  limit ${limit}: ${ms === null ? `unknown: ${why}` : `about ${formatMs(ms)}`}`,
    ),
  ]
}
