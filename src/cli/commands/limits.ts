import { type Command, InvalidArgumentError } from 'commander'
import { type ListedLimit, listLimits, NotFound, recorded, UsageError } from '../../operations/index.js'
import { numbered, typed } from '../../options/index.js'
import { type AuditedEnd, Limits, rateText } from '../../phases/index.js'
import { byAndReason } from '../by.js'
import { type CliContext, lookAtDatabase, type Options, onDatabase } from '../context.js'
import { watchingSystem } from '../watch.js'
import { merged, print, watchOption, withDatabase } from './command.js'
import { pauseOptions, pauseScope, resumeOptions, resumeScope } from './pause.js'

type Listed = Awaited<ReturnType<Limits['list']>>[number]

/** True if documents that need it wait until a user sets it. */
const isUnset = ({ stored, slots }: ListedLimit): boolean => !stored && slots === 0

export function registerLimits(program: Command, context: CliContext): void {
  const command = program
    .command('limits')
    .description('list the limits across all replicas: their slots, who has them, and how fast documents may begin')
    .option('--keys', 'also those of single values of a field (limitBy) that are used, paused or set')
    .action((options: Options & { keys?: true }) =>
      watchingSystem(context, lookAtDatabase, options, async (system, output) => {
        const limits = await listLimits(system, { keys: options.keys === true })
        if (options.json) return output.json(limits)
        if (limits.length === 0) return output.line('no limits; to set one: phaselock limits set <name> --slots 5')
        output.table(['limit', 'slots', 'taken', 'rate', 'by'], limits.map(row))
        const unset = limits.filter(isUnset)
        if (unset.length > 0) output.line()
        for (const { name, neededBy, needs } of unset)
          output.line(
            `!! ${name} isn't set, so what needs it waits (${neededBy.join(', ')}): phaselock limits set ${typed(name)} --slots ${needs}`,
          )
      }),
    )
  withDatabase(watchOption(command), [
    'limits',
    'limits --keys',
    'limits set gitlab-api --slots 5 --rate 100/1m',
    'limits remove gitlab-api',
    'limits pause gitlab-api --for 1h',
  ])
  registerSet(command, context)
  registerRemove(command, context)
  registerPause(command, context)
  registerResume(command, context)
}

function registerPause(limits: Command, context: CliContext): void {
  const command = limits
    .command('pause')
    .description('pause a limit: nothing that needs it begins, of any lifecycle; running steps end as ever')
    .argument('<name>', 'by which lifecycles need it')
    .action((limit: string, _options: Options, sub: Command) => pauseScope(context, merged(sub), { limit }))
  withDatabase(pauseOptions(command), ['limits pause gitlab-api --for 1h --reason "they have asked us to"'])
}

function registerResume(limits: Command, context: CliContext): void {
  const command = limits
    .command('resume')
    .description("end a limit's pause: what needs it goes on at once")
    .argument('<name>', 'by which lifecycles need it')
    .action((limit: string, _options: Options, sub: Command) => resumeScope(context, merged(sub), { limit }))
  withDatabase(resumeOptions(command), ['limits resume gitlab-api'])
}

function registerSet(limits: Command, context: CliContext): void {
  const command = limits
    .command('set')
    .description('set how many slots a limit has, or how fast documents may begin under it; running steps end as ever')
    .argument('<name>', 'by which lifecycles need it')
    .option('--slots <n>', "a whole number, 0 to 1000000, or 'declared': as many as lifecycles declare", slotsFrom)
    .option('--rate <n/span>', "how many may begin in a span of time, such as 100/1m, or 'any'")
    .action(async (name: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      const { slots, rate } = options as { slots?: number | 'declared'; rate?: string }
      const limit = await onDatabase(context, options, async (system) => {
        const limits = new Limits(system.db)
        const set = { slots: slots === 'declared' ? null : slots, rate: rate === 'any' ? null : rate }
        const about = { action: 'limits set', target: `limit ${name}`, before: await setTo(limits, name) }
        const act = () => limits.set(name, set).catch(asUsage)
        return recorded(system, about, act, ({ slots, rate }) => ({ outcome: 'done', after: { slots, rate } }))
      })
      print(
        context,
        options,
        limit,
        `limit ${name}: ${slotsText(limit)}${limit.rate ? `, ${rateText(limit.rate)}` : ''}`,
      )
    })
  withDatabase(byAndReason(command), [
    'limits set gitlab-api --slots 5',
    'limits set gitlab-api --rate 100/1m',
    'limits set gitlab-api --slots declared',
  ])
}

function registerRemove(limits: Command, context: CliContext): void {
  const command = limits
    .command('remove')
    .description('remove a limit: documents that need it wait from then on')
    .argument('<name>', 'by which lifecycles need it')
    .action(async (name: string, _options: Options, sub: Command) => {
      const options = merged(sub)
      const removed = await onDatabase(context, options, async (system) => {
        const limits = new Limits(system.db)
        const about = { action: 'limits remove', target: `limit ${name}`, before: await setTo(limits, name) }
        const ended = (isDone: boolean): AuditedEnd => ({ outcome: isDone ? 'done' : 'unchanged' })
        return recorded(system, about, () => limits.remove(name), ended)
      })
      if (!removed)
        throw new NotFound(`there is no limit '${name}'`, { reason: 'noLimit', name }, 'see: phaselock limits')
      print(context, options, { name, removed }, `limit ${name}: removed`)
    })
  withDatabase(byAndReason(command), ['limits remove gitlab-api'])
}

/** The present settings of a limit. */
async function setTo(limits: Limits, name: string): Promise<object | undefined> {
  const found = (await limits.list()).find((limit) => limit.name === name)
  return found && { slots: found.slots, rate: found.rate }
}

/** Turns invalid options into a usage error. */
function asUsage(error: unknown): never {
  const { name, message } = error as Error
  throw name === 'InvalidOptions' ? new UsageError(message.replace(/^limits\.set: /, '')) : error
}

/** Parses `--slots`. Commander takes null for a flag without a value. */
function slotsFrom(text: string): number | 'declared' {
  if (text === 'declared') return text
  if (/^\d{1,7}$/.test(text) && Number(text) <= 1_000_000) return Number(text)
  throw new InvalidArgumentError("expected a whole number from 0 to 1000000, or 'declared'.")
}

const slotsText = ({ slots }: Listed): string => (slots === null ? 'any number of slots' : numbered(slots, 'slot'))

function row(limit: ListedLimit): string[] {
  const { name, slots, rate, holders, paused, damaged } = limit
  const taken = holders.reduce((sum, one) => sum + one.slots, 0)
  const by = holders.map((one) => `${one.by} (${one.slots})`).join(', ')
  const total = `${isUnset(limit) ? 'not set' : slots === null ? 'any' : slots}${paused ? ' (paused)' : ''}${damaged === null ? '' : ` (${damaged})`}`
  return [name, total, `${taken}`, rate ? rateText(rate) : '-', by || '-']
}
