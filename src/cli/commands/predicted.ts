import type { Command } from 'commander'
import {
  nameOf,
  type PredictedAction,
  type Prediction,
  predict,
  Refused,
  type System,
  UsageError,
} from '../../operations/index.js'
import { type CliContext, lookAtSystem, type Options } from '../context.js'
import { type Output, valueText } from '../output.js'
import { onOneMeant } from './command.js'

/** Adds the options of an action on a document: show what it would do, and do it only to what was seen. */
export const predictable = (command: Command): Command =>
  dryRunOption(command).option(
    '--seen <digest>',
    'only if the document is still as it was (why and show --json print the digest)',
  )

export const dryRunOption = (command: Command): Command =>
  command.option('--dry-run', 'change nothing: show what it would change in a document, and what would come next')

/** The digest that was given, for one document. @throws UsageError for several documents */
export function seenFrom(options: Options, ids: readonly string[]): { readonly seen?: string } {
  const { seen } = options as { seen?: string }
  if (seen === undefined) return {}
  if (ids.length > 1) throw new UsageError('expected one document with --seen, which is the digest of one')
  return { seen }
}

export const isDryRun = (options: Options): boolean => options['dryRun'] === true

/**
 * Prints what an action would do to each document; nothing is changed.
 * @throws Refused if it would be refused for one of them, NotFound, UsageError
 */
export function printPredictions(
  context: CliContext,
  ids: readonly string[],
  options: Options,
  action: PredictedAction,
): Promise<void> {
  const { output } = context
  return lookAtSystem(context, options, async (system: System) => {
    const seen = seenFrom(options, ids)
    const all: Prediction[] = []
    for (const id of ids) {
      const prediction = await onOneMeant(context, id, options, (ref) => predict(system, { ...action, ...seen, ref }))
      all.push(prediction)
      if (!options.json) printOne(output, prediction)
    }
    if (options.json) output.json(ids.length === 1 ? all[0] : all)
    const refused = all.find(({ would }) => would === 'refused')
    if (refused) throw new Refused(refused.text, undefined, 'nothing was changed, as with the action itself')
  })
}

function printOne(output: Output, { lifecycle, document, would, text, before, after, why, seen }: Prediction): void {
  const name = nameOf({ lifecycle, _id: document })
  if (would === 'refused') return
  output.line(`${name}: ${text} (--dry-run: it was not)`)
  const paths = why ? [...new Set([...Object.keys(before), ...Object.keys(after)])] : []
  const shown = (fields: Readonly<Record<string, unknown>>, path: string) =>
    path in fields ? short(fields[path]) : '-'
  for (const path of paths) output.line(`  ${path}: ${shown(before, path)} -> ${shown(after, path)}`)
  if (why) output.line(`Then: ${why.sentence}`)
  output.line(`To do it only if nothing changes until then: --seen ${seen}`)
}

const LONGEST = 200
function short(value: unknown): string {
  const text = valueText(value)
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 3)}...` : text
}
