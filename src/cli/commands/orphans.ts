import type { Command } from 'commander'
import {
  findOrphans,
  nameOf,
  type OrphanState,
  type OrphansReport,
  type OrphansRequest,
  recorded,
} from '../../operations/index.js'
import type { AuditedEnd } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import { byAndReason } from '../by.js'
import { type CliContext, lookAtSystem, type Options, onSystem } from '../context.js'
import { CliError, EXIT } from '../errors.js'
import { durationFrom, withDatabase } from './command.js'

export function registerOrphans(program: Command, context: CliContext): void {
  const command = program
    .command('orphans')
    .description('list objects in Kubernetes whose documents are gone; nothing is removed without --remove')
    .option('--remove', 'remove those that may be removed, each after reading its document again')
    .option('--older-than <duration>', 'remove nothing younger than this (at least a lease)', durationFrom, '10m')
    .option('--ended', 'also remove what documents in a final phase have left behind')
    .option('--empty', 'also remove objects of lifecycles whose collection has no documents at all')
    .option('--region <name...>', 'look only in these regions (default: all)')
    .option('--namespace <name...>', 'look only in these namespaces (default: the whole cluster)')
    .option(
      '--kubeconfig <file>',
      "for the cluster whose Secrets hold the regions' kubeconfigs; without Region documents, for the cluster to look in (default: as kubectl finds it)",
    )
    .action((options: Options & OrphansRequest & { region?: string[]; namespace?: string[] }) =>
      (options.remove ? onSystem : lookAtSystem)(context, options, async (system) => {
        const { region: regions, namespace: namespaces } = options
        const act = () => findOrphans(system, { ...options, regions, namespaces })
        const { asked, failed, ...report } = await recorded(system, { action: 'orphans --remove' }, act, endOfRemoval)
        if (options.json) context.output.json(report)
        else print(context, { asked, ...report }, options.remove === true)
        const missed = report.notLookedAt.filter(({ what }) => what === null).length
        const problems = [
          missed > 0 ? `${missed} cluster${missed === 1 ? '' : 's'} could not be asked` : '',
          failed > 0 ? `${failed} object${failed === 1 ? '' : 's'} could not be removed` : '',
        ].filter(Boolean)
        if (problems.length === 0) return
        const expected = 'expected to look everywhere and to remove what was found'
        throw new CliError('OrphansMissed', EXIT.failure, `${expected}: ${problems.join(', ')}`)
      }),
    )
  withDatabase(byAndReason(command), ['orphans', 'orphans --region eu-1 --json', 'orphans --remove --older-than 1h'])
}

function endOfRemoval({ orphans }: OrphansReport): AuditedEnd {
  const removed = orphans.filter((orphan) => orphan.removed)
  const after = removed.map(({ region, kind, namespace, name }) =>
    [region, namespace, kind, name].filter(Boolean).join(' '),
  )
  return removed.length > 0 ? { outcome: 'done', after } : { outcome: 'unchanged' }
}

function print({ output }: CliContext, report: Omit<OrphansReport, 'failed'>, removes: boolean): void {
  const { orphans, notLookedAt, lifecycles, databases } = report
  const last = removes ? 'became' : 'may be removed'
  if (orphans.length > 0) {
    const rows = orphans.map((orphan) => [...rowOf(orphan), removes ? became(orphan) : (orphan.kept ?? 'yes')])
    output.table(['region', 'kind', 'namespace', 'name', 'document', 'why', 'age', last], rows)
  } else if (report.asked > 0) output.line(`no orphans of ${lifecycles.known.join(', ')}`)
  for (const { region, what, why } of notLookedAt) {
    const where = what === null ? (region ?? undefined) : `${what}${region === null ? '' : ` in ${region}`}`
    output.problem(`not looked at: ${where === undefined ? '' : `${where}: `}${why}`)
  }
  for (const [lifecycle, n] of Object.entries(lifecycles.others))
    output.problem(`not judged: ${n} of the lifecycle ${lifecycle}, which no replica has registered in this database`)
  for (const [database, n] of Object.entries(databases)) output.problem(`not judged: ${n} of the database ${database}`)
}

const rowOf = ({ region, kind, namespace, name, reason, ageMs, ...owner }: OrphanState): string[] => [
  region ?? '-',
  kind,
  namespace ?? '-',
  name,
  nameOf(owner),
  reason,
  ageMs === null ? '?' : formatMs(Math.max(0, ageMs)),
]

const became = ({ removed, left }: OrphanState): string => (removed ? 'removed' : `left: ${left ?? 'not tried'}`)
