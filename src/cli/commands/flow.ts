import { type Command, InvalidArgumentError } from 'commander'
import { type Flow, modelOf, readFlow, sparkline } from '../../operations/index.js'
import { formatMs } from '../../time/index.js'
import { type CliContext, lookAtSystem, type Options } from '../context.js'
import type { Output } from '../output.js'
import { watchingSystem } from '../watch.js'
import { watchOption, withDatabase } from './command.js'

interface FlowOptions extends Options {
  readonly minutes?: number
  readonly hours?: number
}

export function registerFlow(program: Command, context: CliContext): void {
  const command = program
    .command('flow')
    .description('how much goes through the phases: rates, times in each phase and causes of errors')
    .argument('[lifecycle]', 'only this one (default: all)')
    .option('--minutes <number>', 'of the last minutes, 1 to 1440 (default: 60)', upTo(1_440))
    .option('--hours <number>', 'of the last hours instead, 1 to 720', upTo(720))
    .action((lifecycle: string | undefined, options: FlowOptions) =>
      watchingSystem(context, lookAtSystem, options, async (system, output) => {
        const { minutes, hours } = options
        const names =
          lifecycle === undefined ? system.models.map(({ name }) => name) : [modelOf(system, lifecycle).name]
        const flows = await Promise.all(names.map((name) => readFlow(system.db, { lifecycle: name, minutes, hours })))
        if (options.json) return output.json(flows)
        for (const [i, flow] of flows.entries()) {
          if (i > 0) output.line()
          print(output, flow)
        }
      }),
    )
  withDatabase(watchOption(command), ['flow', 'flow order --minutes 10', 'flow order --hours 24 --json'])
}

const upTo = (most: number) => (text: string) => {
  if (/^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= most) return Number(text)
  throw new InvalidArgumentError(`expected a whole number from 1 to ${most}.`)
}

/** The numbers of intervals that fit a terminal: more are summed. */
const MOST_BARS = 60

function print(output: Output, flow: Flow): void {
  const { lifecycle, unit, intervals, uncounted } = flow
  const count = `${intervals.length} ${unit}${intervals.length === 1 ? '' : 's'}`
  output.line(`${lifecycle}, last ${count}: ${rateText(flow.perMinute)} recorded`)
  if (uncounted === null)
    output.line('not counted: what is still in the documents of replicas, which this user may not read')
  for (const name of uncounted ?? []) output.line(`not counted: ${name}, a replica of an older version`)
  if (flow.moves.length === 0) output.line('nothing was recorded')
  else printTables(output, flow)
}

function printTables(output: Output, { unit, intervals, moves, phases, causes }: Flow): void {
  const bars = (of: readonly number[]) => sparkline(summed(of))
  output.line()
  output.table(
    ['recorded', 'number', `by ${unit}`],
    (['recorded', 'moved', 'errors', 'parks'] as const).map((what) => {
      const numbers = intervals.map((one) => one[what])
      return [what === 'recorded' ? 'all' : what, String(sum(numbers)), bars(numbers)]
    }),
  )
  output.line()
  output.table(
    ['from', 'to', 'outcome', 'number'],
    moves.map(({ from, to, outcome, n }) => [from, to === from ? '' : to, outcome, String(n)]),
  )
  if (Object.keys(phases).length > 0) {
    output.line()
    output.table(
      ['phase', 'left it', 'rate', 'half within', '95 % within'],
      Object.entries(phases).map(([phase, { left, rate, p50Ms, p95Ms }]) => [
        ...[phase, String(left), rateText(rate)],
        ...[p50Ms, p95Ms].map((ms) => (ms === null ? '-' : `~${formatMs(ms)}`)),
      ]),
    )
  }
  if (Object.keys(causes).length === 0) return
  output.line()
  output.table(
    ['cause', 'kind', 'number', 'versions', `by ${unit}`, 'text'],
    Object.entries(causes).map(([cause, { kind, n, versions, byInterval, text }]) => [
      ...[cause, kind, String(n), versions.join(', '), bars(byInterval), text],
    ]),
  )
}

const rateText = (perMinute: number): string =>
  perMinute >= 10 ? `${Math.round(perMinute)}/min` : `${Math.round(perMinute * 100) / 100}/min`

const sum = (numbers: readonly number[]): number => numbers.reduce((all, n) => all + n, 0)

function summed(numbers: readonly number[]): number[] {
  const each = Math.ceil(numbers.length / MOST_BARS)
  const bars = Math.ceil(numbers.length / each)
  return Array.from({ length: bars }, (_, i) => sum(numbers.slice(i * each, (i + 1) * each)))
}
