import { cpuSlowdown } from '../../time/index.js'

/** A run's verdict: all is as it must be; something isn't; or the machine, or chance, prevented the run from showing it. */
export type Verdict = 'shown' | 'off' | 'not shown'

export interface Judgement {
  readonly verdict: Verdict
  /** Each figure that is off: which, what was expected, what it is. Empty: none. */
  readonly off: readonly string[]
  /** Why the run shows nothing, and which figures are affected. Empty: it does. */
  readonly notShown: readonly string[]
  /** Times that would be off on a machine that isn't busy: here they show nothing, and change no verdict. */
  readonly slow: readonly string[]
}

export interface Conditions {
  /** Figures that must never be off, however slow the machine is; the others, when off, may also mean that the time wasn't enough. */
  readonly safety: readonly string[]
  /** Figures of how long something takes. Default: none. */
  readonly times?: readonly string[]
  /** What the run needed and didn't have, such as replicas that have started. */
  readonly missing: readonly string[]
  /** The machine's: see {@link slowness}. */
  readonly slowness: number
}

/** From this slowness on, what didn't happen in time proves nothing. */
const STARVED = 2

/** How many times longer things take because this process, or another, has to wait for a CPU. */
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

/** For people; `shown` is printed when all is as it must be. */
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
