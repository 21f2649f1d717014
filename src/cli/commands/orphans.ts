import { type Command, InvalidArgumentError } from 'commander'
import type { Cluster, FoundOrphans, Orphan, Swept } from '../../kubernetes/index.js'
import { idText } from '../../operations/index.js'
import { durationMs, formatMs } from '../../time/index.js'
import { type CliContext, inWorkspace, type Options } from '../context.js'
import { OrphansMissed } from '../errors.js'
import type { Workspace } from '../workspace.js'
import { examples, withDatabase } from './document-command.js'
import { type Place, withPlaces } from './orphan-places.js'

const OLDER_THAN = '10m'

export function registerOrphans(program: Command, context: CliContext): void {
  const command = program
    .command('orphans')
    .description('objects in Kubernetes whose documents are gone; removes nothing unless told to')
    .option('--remove', 'remove those that may be removed, each after another look at its document')
    .option('--older-than <duration>', 'remove nothing that is younger (at least a lease)', olderThan, OLDER_THAN)
    .option('--ended', 'remove also what documents in a final phase have left')
    .option('--empty', "remove also where the lifecycle's collection has no documents at all")
    .option('--region <name...>', 'look in these regions only (default: in all)')
    .option('--namespace <name...>', 'look in these namespaces only (default: in the whole cluster)')
    .option(
      '--kubeconfig <file>',
      "of the cluster whose Secrets hold the regions' kubeconfigs; without Region documents: of the cluster to look in (default: as kubectl finds it)",
    )
    .action((options: Options) => orphans(context, options))
  withDatabase(command).addHelpText(
    'after',
    examples(
      'orphans --lifecycles ./lifecycles.js',
      'orphans --lifecycles ./lifecycles.js --region eu-1 --json',
      'orphans --lifecycles ./lifecycles.js --remove --older-than 1h',
    ),
  )
}

function olderThan(text: string): string {
  try {
    durationMs(text as '1s')
    return text
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message)
  }
}

/** What was found in one place, and what became of it. */
interface Report extends FoundOrphans {
  readonly region: string | undefined
  readonly swept: ReadonlyMap<Orphan, Swept>
}

async function orphans(context: CliContext, options: Options): Promise<void> {
  const { Orphans } = await import('../../kubernetes/index.js')
  const removes = options['remove'] === true
  const use = async (workspace: Workspace) => {
    const sweep = new Orphans({
      db: workspace.connection.db,
      models: workspace.lifecycles.map(({ model }) => model),
      olderThanMs: durationMs(options['olderThan'] as '10m'),
      ended: options['ended'] === true,
      emptyCollections: options['empty'] === true,
    })
    const namespaces = options['namespace'] as string[] | undefined
    const seen = new Set<string>()
    const reports: Report[] = []
    const look = async (cluster: Cluster, { name: region, namespace }: Place) => {
      const found = await sweep.find(cluster, namespaces, namespace)
      // Two regions may be in one cluster.
      const own = found.orphans.filter(({ uid }) => !seen.has(uid))
      for (const { uid } of own) seen.add(uid)
      const swept = new Map<Orphan, Swept>()
      // Before anything is removed: what was done is told also when the cluster goes away in the middle.
      reports.push({ ...found, orphans: own, region, swept })
      if (removes) for (const orphan of own) swept.set(orphan, await sweep.remove(cluster, orphan))
    }
    const missed = await withPlaces(workspace, options, look)
    if (options['json']) context.output.json(asJson(reports, missed, workspace.names))
    else print(context, reports, missed, workspace.names, removes)
    const failed = reports.flatMap(({ swept }) => [...swept.values()]).filter((one) => one !== 'removed' && one.failed)
    if (missed.length + failed.length > 0) throw new OrphansMissed(missed.length, failed.length)
  }
  await inWorkspace(context, options, use, removes ? 'writes' : 'reads')
}

type Missed = readonly { readonly region: string | undefined; readonly why: string }[]

function asJson(reports: readonly Report[], missed: Missed, known: readonly string[]) {
  return {
    orphans: reports.flatMap(({ region, orphans: found, swept }) =>
      found.map((orphan) => {
        const { ref, uid, owner, why, reason, ageMs, kept } = orphan
        const { apiVersion, kind, metadata } = ref
        const became = swept.get(orphan)
        return {
          region: region ?? null,
          apiVersion,
          kind,
          namespace: metadata.namespace ?? null,
          name: metadata.name,
          uid,
          lifecycle: owner.model.name,
          _id: owner.id,
          why,
          reason,
          ageMs,
          kept: kept ?? null,
          ...(became && { removed: became === 'removed', left: became === 'removed' ? null : became.left }),
        }
      }),
    ),
    notLookedAt: [
      ...missed.map(({ region, why }) => ({ region: region ?? null, what: null, why })),
      ...reports.flatMap(({ region, notLookedAt }) => notLookedAt.map((one) => ({ region: region ?? null, ...one }))),
    ],
    lifecycles: { known, others: Object.fromEntries(summed(reports, 'lifecycles')) },
    databases: Object.fromEntries(summed(reports, 'databases')),
  }
}

function print(
  { output }: CliContext,
  reports: readonly Report[],
  missed: Missed,
  known: readonly string[],
  removes: boolean,
): void {
  const rows = reports.flatMap(({ region, orphans: found, swept }) =>
    found.map((orphan) => [
      region ?? '-',
      ...rowOf(orphan),
      removes ? became(swept.get(orphan)) : (orphan.kept ?? 'yes'),
    ]),
  )
  if (rows.length === 0 && reports.length > 0) output.line(`no orphans of ${known.join(', ')}`)
  else if (rows.length > 0)
    output.table(
      ['region', 'kind', 'namespace', 'name', 'document', 'why', 'age', removes ? 'became' : 'may be removed'],
      rows,
    )
  for (const { region, why } of missed)
    output.problem(`not looked at: ${region === undefined ? '' : `${region}: `}${why}`)
  for (const { region, notLookedAt } of reports)
    for (const { what, why } of notLookedAt)
      output.problem(`not looked at: ${what}${region === undefined ? '' : ` in ${region}`}: ${why}`)
  for (const [lifecycle, n] of summed(reports, 'lifecycles'))
    output.problem(`not judged: ${n} of the lifecycle ${lifecycle}, which isn't known here: --lifecycles <module>`)
  for (const [database, n] of summed(reports, 'databases'))
    output.problem(`not judged: ${n} of the database ${database}`)
}

const rowOf = ({ ref: { kind, metadata }, owner, reason, ageMs }: Orphan): string[] => [
  kind,
  metadata.namespace ?? '-',
  metadata.name,
  `${owner.model.name} ${idText(owner.id)}`,
  reason,
  Number.isNaN(ageMs) ? '?' : formatMs(Math.max(0, ageMs)),
]

const became = (swept: Swept | undefined): string =>
  swept === 'removed' ? 'removed' : `left: ${swept?.left ?? 'it was not tried'}`

function summed(reports: readonly Report[], of: 'lifecycles' | 'databases'): Map<string, number> {
  const all = new Map<string, number>()
  for (const report of reports) for (const [name, n] of report[of]) all.set(name, (all.get(name) ?? 0) + n)
  return all
}
