import type { Command } from 'commander'
import {
  ageToSay,
  type CensusRead,
  type CensusRequest,
  type Count,
  censusFor,
  countText,
  modelOf,
  type PhaseCount,
  phaseCounts,
  type System,
} from '../../operations/index.js'
import { typed } from '../../options/index.js'
import { fromNow } from '../../time/index.js'
import { type CliContext, lookAtSystem, type Options } from '../context.js'
import type { Output } from '../output.js'
import { watching } from '../watch.js'
import { watchOption, withDatabase } from './command.js'
import { freshOption } from './fresh.js'

export function registerCount(program: Command, context: CliContext): void {
  const command = program
    .command('count')
    .description('count documents by lifecycle and phase, and what they are doing')
    .argument('[lifecycle]', 'the kind of document (default: all)')
    .action((lifecycle: string | undefined, options: Options & CensusRequest) =>
      lookAtSystem(context, options, (system) => {
        const models = lifecycle === undefined ? system.models : [modelOf(system, lifecycle)]
        return watching(context, options, (output) => printCounts(output, { ...system, models }, options))
      }),
    )
  const examples = ['count', 'count --fresh', 'count api-gateway --json', 'count --watch']
  withDatabase(watchOption(freshOption(command)), examples)
}

/** Prints the documents of each phase by condition, as the last census counted them. */
export async function printCounts(output: Output, system: System, options: Options & CensusRequest): Promise<void> {
  const read = await censusFor(system, { fresh: options.fresh, takeMissing: true })
  const counts = phaseCounts(read)
  if (options.json) return output.json(counts)
  const shown = counts.filter(({ documents }) => documents.n > 0)
  const names = system.models.map(({ name }) => name)
  if (shown.length > 0)
    output.table(
      ['lifecycle', 'phase', 'documents', 'due', 'held', 'sleeping', 'failing', 'parked'],
      shown.map(countRow),
    )
  else if (read.without.size < names.length)
    output.line(`no documents of ${[...read.census.keys()].join(', ')} yet; add one: phaselock add ${typed(names[0]!)}`)
  for (const line of agesOf(read)) output.line(line)
}

/** What has to be said of the censuses themselves. */
function agesOf({ census, now, without }: CensusRead): string[] {
  const old = [...census.values()].filter((one) => ageToSay(one, now) !== undefined)
  const lines = [
    ...(old.length > 0 ? [old.map((one) => `${one._id} as of ${fromNow(one.at, now)}`).join(', ')] : []),
    ...[...without].map(([lifecycle, why]) => `${lifecycle} isn't counted: ${why}`),
  ]
  return lines.length > 0 ? [...lines, '(--fresh counts now)'] : []
}

/** A row of counts. A resting or final document without a lease isn't due in any sense that matters to a person. */
function countRow(count: PhaseCount): string[] {
  const n = (value: Count) => (value.n === 0 && !value.more ? '-' : countText(value))
  const isWorking = count.kind === 'working'
  return [
    count.lifecycle,
    `${cut(count.phase)}${count.kind === 'unknown' ? ' (unknown)' : ''}${count.paused ? ' (paused)' : ''}`,
    countText(count.documents),
    isWorking ? n(count.due) : '',
    n({ n: count.held }),
    isWorking ? `${n(count.sleeping)}${count.asking.n > 0 ? ` (${countText(count.asking)} asking)` : ''}` : '',
    isWorking ? n(count.failing) : '',
    n(count.parked),
  ]
}

const LONGEST = 100

/** Cuts a text, which may be anything that a client has stored: one document must not fill the screen. */
export const cut = (text: string): string => (text.length > LONGEST ? `${text.slice(0, LONGEST - 3)}...` : text)
