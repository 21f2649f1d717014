import type { Command } from 'commander'
import { isValid } from '../../lock/index.js'
import { type Found, modelOf, nameOf, type Shown, showDocument, type Term } from '../../operations/index.js'
import { numbered } from '../../options/index.js'
import { CHILD_STATES, causeLines, type Progress } from '../../phases/index.js'
import { formatMs, fromNow } from '../../time/index.js'
import { type CliContext, lookAtSystem, type Options } from '../context.js'
import { type Output, valueText } from '../output.js'
import { watchingSystem } from '../watch.js'
import { onDocument, refOf, watchOption, withDatabase } from './command.js'

export function registerShow(program: Command, context: CliContext): void {
  const description = 'show one document: what it is waiting for in one sentence, its fields and its history'
  const command = onDocument(program, 'show', description).action((id: string, options: Options) =>
    watchingSystem(context, lookAtSystem, options, async (system, output) => {
      const shown = await showDocument(system, refOf(id, options))
      if (options.json) printJson(output, shown)
      else print(output, shown, modelOf(system, shown.lifecycle).settings.progress)
    }),
  )
  withDatabase(watchOption(command), [
    'show shop',
    'show 66f0a1b2c3d4e5f60718293a',
    `show '{"$oid": "66f0a1b2c3d4e5f60718293a"}' --json`,
    'show shop --lifecycle api-gateway',
    'show shop --watch',
  ])
}

function printJson(output: Output, shown: Shown): void {
  const { lifecycle, condition, explanation, blockedBy, pause, limits, refusal, holder } = shown
  const { children, parent, document, seen, also } = shown
  const others = also.map((other) => ({ lifecycle: other.lifecycle, explanation: other.explanation }))
  const why = { lifecycle, condition, explanation, blockedBy, pause, limits, refusal, holder }
  output.json({ ...why, children, parent, document, seen, also: others })
}

const titleOf = ({ lifecycle, document: { _id, phase }, condition }: Found) =>
  `${nameOf({ lifecycle, _id })}: ${condition.kind === 'removed' ? 'removed' : valueText(phase)}`

function print(output: Output, shown: Shown, field: string): void {
  const { document, condition, explanation, alsoBlockedBy, also, now } = shown
  // An owner's own field of that name is shown unchanged.
  const isOurs = condition.kind !== 'broken' || condition.field !== field
  const { history, ...rest } = isOurs ? ((document[field] ?? {}) as Progress) : {}
  output.line(titleOf(shown))
  output.line(explanation)
  const holder = aboutHolder(shown)
  if (holder) output.line(holder)
  for (const term of alsoBlockedBy) output.line(alsoBlocked(term))
  for (const line of aboutFamily(shown)) output.line(line)
  output.line()
  printFields(output, [
    ...Object.entries(document).filter(([name]) => name !== field || !isOurs),
    ...Object.entries(rest).map(
      ([name, value]) => [`${field}.${name}`, name === 'error' ? stackOf(value) : value] as const,
    ),
  ])
  const entries = Array.isArray(history) ? history.filter((entry) => entry && typeof entry === 'object') : []
  if (entries.length > 0) printHistory(output, entries, now)
  if (also.length === 0) return
  output.line()
  output.line('With the same _id (--lifecycle shows them):')
  for (const other of also) output.line(`  ${titleOf(other)}. ${other.explanation}`)
}

/** The conditions that keep it from going on besides the one in the sentence. */
const alsoBlocked = ({ text }: Term): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`

/** Its children, the worst of them by name, and its parent. */
function aboutFamily({ children, parent }: Shown): string[] {
  const ofChildren = (children?.byLifecycle ?? []).map(({ lifecycle, total, worst, worstIds, ...counts }) => {
    const all = CHILD_STATES.flatMap((state) => (counts[state] > 0 ? [`${counts[state]} ${state}`] : []))
    const named = worstIds.map((_id) => nameOf({ lifecycle, _id })).join(', ')
    return `It has ${numbered(total, 'child', 'children')} of ${lifecycle}: ${all.join(', ')}${named ? ` (${worst}: ${named})` : ''}.`
  })
  const unknown = children?.unknown.map((name) => `It has children of ${name}, of which nothing is known here.`) ?? []
  if (!parent) return [...ofChildren, ...unknown]
  const { lifecycle, id: _id, key, phase } = parent
  const where = phase === undefined ? 'which is not there any more' : `which is in ${valueText(phase)}`
  return [...ofChildren, ...unknown, `It is the child '${key}' of ${nameOf({ lifecycle, _id })}, ${where}.`]
}

/** The state of its holder; if the lease has expired, only of a replica that is listed. */
function aboutHolder({ condition, holder, now }: Shown): string | undefined {
  if (!holder)
    return condition.kind === 'held' ? 'Its holder is not among the replicas (phaselock replicas).' : undefined
  const { name, live, version, host, pid } = holder
  const seen = fromNow(holder.seenAt, now)
  const where = host === undefined ? '' : ` (${version ?? '?'}, on ${host}, pid ${pid ?? '?'})`
  return live ? `${name}${where} is live: seen ${seen}.` : `${name}${where} is dead: last seen ${seen}.`
}

function printFields(output: Output, fields: readonly (readonly [string, unknown])[]): void {
  const width = Math.max(0, ...fields.map(([name]) => name.length))
  const indent = `\n${' '.repeat(width + 4)}`
  for (const [name, value] of fields)
    output.line(`  ${name.padEnd(width)}  ${valueText(value).replaceAll('\n', indent)}`)
}

/** An error as it was thrown; any other stored value unchanged. */
function stackOf(error: unknown): unknown {
  const { name, message, stack } = (error ?? {}) as Record<string, unknown>
  if (typeof name !== 'string' || typeof message !== 'string') return error
  const thrown = typeof stack === 'string' && stack !== '' ? stack : `${name}: ${message}`
  return [thrown, ...causeLines(error).map((cause) => `caused by ${cause}`)].join('\n')
}

function printHistory(output: Output, history: NonNullable<Progress['history']>, now: Date): void {
  output.line()
  output.table(
    ['when', 'step', 'outcome', 'from -> to', 'took', 'by'],
    history.map((entry) => [
      entry.at instanceof Date && isValid(entry.at) ? fromNow(entry.at, now) : '?',
      valueText(entry.step ?? '-'),
      `${valueText(entry.outcome ?? '?')}${entry.count > 1 ? ` x ${entry.count}` : ''}${entry.reason ? `: ${valueText(entry.reason)}` : ''}`,
      entry.from === entry.to ? valueText(entry.from ?? '?') : `${valueText(entry.from)} -> ${valueText(entry.to)}`,
      formatMs(Number(entry.ms ?? 0)),
      valueText(entry.by ?? '?'),
    ]),
  )
}
