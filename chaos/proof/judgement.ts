import { cpuSlowdown } from '../../dist/time/index.js'

/** A run's verdict: everything is as it must be; a figure is off; or the machine, or chance, prevented the run from showing it. */
export type Verdict = 'shown' | 'off' | 'not shown'

export interface Judgement {
  readonly verdict: Verdict
  /** The figures that are off, each with the expected and the actual value. Empty if there are none. */
  readonly off: readonly string[]
  /** The reasons why the run shows nothing, and the affected figures. Empty if it does. */
  readonly notShown: readonly string[]
  /** Times that would be off on a machine that isn't busy: here they show nothing, and change no verdict. */
  readonly slow: readonly string[]
}

export interface Conditions {
  /** Figures that must never be off, however slow the machine is; the others, when off, may also mean that the time wasn't enough. */
  readonly safety: readonly string[]
  /** Figures that are durations. Default: none. */
  readonly times?: readonly string[]
  /** Missing conditions of the run, such as replicas that have started. */
  readonly missing: readonly string[]
  /** The slowness of the machine: see {@link slowness}. */
  readonly slowness: number
}

/** The slowness from which a missed deadline proves nothing. */
const STARVED = 2

/** The factor by which things take longer because this process, or another, has to wait for a CPU. */
export const slowness = (others = 1): number => Math.max(cpuSlowdown(), others)

/** @param lines the figures that aren't as they must be: `lost: expected 0, got 2` */
export function judge(lines: readonly string[], { safety, times = [], missing, slowness }: Conditions): Judgement {
  const isOneOf = (figures: readonly string[]) => (line: string) => figures.includes(line.split(':')[0]!)
  const isUnsafe = isOneOf(safety)
  const isStarved = slowness >= STARVED
  const slow = isStarved ? lines.filter(isOneOf(times)) : []
  const judged = lines.filter((line) => !slow.includes(line))
  const starved = `a machine with time for this: it took ${slowness.toFixed(1)} times as long for lack of CPU time`
  const reasons = [...missing, ...(isStarved && !judged.every(isUnsafe) ? [`expected ${starved}`] : [])]
  const off = reasons.length > 0 ? judged.filter(isUnsafe) : judged
  const notShown = reasons.length > 0 ? [...reasons, ...judged.filter((line) => !isUnsafe(line))] : []
  return { verdict: off.length > 0 ? 'off' : notShown.length > 0 ? 'not shown' : 'shown', off, notShown, slow }
}

/** The verdict for people; `shown` is printed if everything is as it must be. */
export function verdictText({ verdict, off, notShown, slow }: Judgement, shown: readonly string[]): string[] {
  const list = (title: string, lines: readonly string[]) =>
    lines.length > 0 ? [title, ...lines.map((line) => `  ${line}`)] : []
  return [
    ...(verdict === 'shown' ? shown : []),
    ...list('Off:', off),
    ...list('Could not be shown (which is not a failure: run it again, on a less busy machine):', notShown),
    ...list('Slow:', slow),
  ]
}

/** A line for each figure, with a mark on those that are off. */
export function figureLines<Result extends Judgement>(
  lines: readonly (readonly [figure: keyof Result & string, text: string])[],
  result: Result,
): string[] {
  const isOff = (figure: string) => result.off.some((line) => line.startsWith(`${figure}:`))
  return lines.map(
    ([figure, text]) => `${isOff(figure) ? ' ✗' : '  '} ${String(result[figure] ?? 'never').padStart(8)}  ${text}`,
  )
}
