import { figureLines, type Judgement, judge, verdictText } from '../proof/judgement.ts'

/** The figures of the demo of syncs. Those of the points are of both syncs together. */
export interface SyncFigures {
  readonly files: number
  readonly points: number
  readonly pointsAfter: number
  readonly duplicates: number
  readonly missing: number
  readonly stale: number
  readonly firstSeconds: number
  readonly touched: number
  readonly renamed: number
  readonly embedded: number
  readonly secondSeconds: number
  readonly queries: number
  readonly found: number
  readonly seconds: number
}

/** What the commits ask for. */
export interface SyncExpected {
  readonly points: number
  readonly pointsAfter: number
  readonly touched: number
  readonly renamed: number
  readonly edited: number
}

export type SyncResult = SyncFigures & Judgement

export interface SyncReport {
  readonly result: SyncResult
  readonly evidence: readonly string[]
}

/** A line that is inserted changes two chunks of a file, seldom three. */
const CHUNKS_PER_EDIT = 3
const FOUND_SHARE = 0.8

/** @param missing the faults that struck nothing */
export function judgeSync(
  figures: SyncFigures,
  expected: SyncExpected,
  missing: readonly string[],
  slowness: number,
): Judgement {
  const exactly = (figure: keyof SyncFigures, value: number) =>
    figures[figure] === value ? [] : [`${figure}: expected ${value}, got ${figures[figure]}`]
  const most = CHUNKS_PER_EDIT * expected.edited
  const least = FOUND_SHARE * figures.queries
  const lines = [
    ...exactly('points', expected.points),
    ...exactly('pointsAfter', expected.pointsAfter),
    ...exactly('duplicates', 0),
    ...exactly('missing', 0),
    ...exactly('stale', 0),
    ...exactly('touched', expected.touched),
    ...exactly('renamed', expected.renamed),
    ...(figures.embedded <= most ? [] : [`embedded: expected at most ${most}, got ${figures.embedded}`]),
    ...(figures.found >= least ? [] : [`found: expected at least ${least}, got ${figures.found}`]),
  ]
  // None of them depends on time: a slow machine excuses nothing.
  const safety = lines.map((line) => line.split(':')[0]!)
  return judge(lines, { safety, missing: missing.map((what) => `expected ${what}`), slowness })
}

const LINES: readonly (readonly [figure: keyof SyncFigures, text: string])[] = [
  ['files', 'files, synced by three replicas: one killed, one paused past its lease and continued'],
  ['points', 'points in the vector store after that, as many as there are chunks'],
  ['firstSeconds', 'seconds for it'],
  ['touched', 'files touched by the next sync: 20 were edited, five deleted'],
  ['renamed', 'files in a folder that was renamed'],
  ['embedded', 'chunks embedded for all that'],
  ['pointsAfter', 'points after it'],
  ['secondSeconds', 'seconds for it'],
  ['duplicates', 'points too many, after both'],
  ['missing', 'chunks without a point'],
  ['stale', 'points of what is no longer there'],
  ['queries', 'queries'],
  ['found', 'of them found their file among the first three'],
  ['seconds', 'seconds: the whole demo'],
]

export function reportText({ result, evidence }: SyncReport): string {
  const verdict = verdictText(result, ['The vector store holds each chunk of each file exactly once.'])
  return [...figureLines(LINES, result), '', ...verdict, ...evidence.map((line) => `    ${line}`), ''].join('\n')
}
