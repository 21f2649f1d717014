import type { Command } from 'commander'
import {
  type LifecycleOfReplica,
  listReplicas,
  type MixedLifecycle,
  nameOf,
  type ReplicaState,
  versionsMixed,
} from '../../operations/index.js'
import { formatMs, fromNow } from '../../time/index.js'
import { type CliContext, lookAtSystem, type Options } from '../context.js'
import { type Output, valueText } from '../output.js'
import { watchingSystem } from '../watch.js'
import { durationFrom, watchOption, withDatabase } from './command.js'

export function registerReplicas(program: Command, context: CliContext): void {
  const command = program
    .command('replicas')
    .description('list the replicas that share the work: what each runs and holds, and when it was last seen')
    .argument('[name]', 'show only this one, with the documents that it leases')
    .option('--dead-after <duration>', 'one that was seen longer ago than this counts as dead', durationFrom, '30s')
    .action((name: string | undefined, options: Options & { readonly deadAfter: string }) =>
      watchingSystem(context, lookAtSystem, options, async (system, output) => {
        const { replicas, now } = await listReplicas(system, { name, deadAfter: options.deadAfter })
        if (options.json) output.json(replicas)
        else if (replicas.length === 0)
          output.line(`no replicas of ${system.models.map((model) => model.name).join(', ')}`)
        else if (name === undefined) {
          printAll(output, replicas, now)
          for (const mixed of await versionsMixed(system)) printMixed(output, mixed)
        } else for (const replica of replicas) printOne(output, replica, now)
      }),
    )
  withDatabase(watchOption(command), ['replicas', 'replicas --watch', 'replicas --json', 'replicas api-1~5f3a9c'])
}

/** The number of lifecycles of one replica that fit a terminal. */
const MOST_SHOWN = 3

function printAll(output: Output, replicas: readonly ReplicaState[], now: Date): void {
  const rows = replicas.map((replica) => {
    const { name, version, appVersion, lifecycles, tickMs } = replica
    const more = lifecycles.length - MOST_SHOWN
    const shown = [...lifecycles.slice(0, MOST_SHOWN).map(placesOf), ...(more > 0 ? [`${more} more`] : [])]
    return [
      name,
      valueText(appVersion ?? '-'),
      valueText(version ?? '-'),
      shown.join(', '),
      ms(tickMs),
      seenText(replica, now),
    ]
  })
  output.table(['replica', 'app', 'phaselock', 'lifecycles (held, free)', 'tick', 'seen'], rows)
}

function printMixed(output: Output, { lifecycle, graphs, onlySome }: MixedLifecycle): void {
  output.line()
  output.line(`!! ${lifecycle}: its replicas don't run the same`)
  for (const { graph, replicas, versions, differences } of graphs) {
    const run = replicas.length === 1 ? 'runs' : 'run'
    output.line(`   ${replicas.join(', ')} ${run} ${graph ?? 'an unknown definition'} (app ${versions.join(', ')})`)
    for (const difference of differences) output.line(`     ${difference}`)
  }
  for (const { phase, replicas } of onlySome) output.line(`   only these handle ${phase}: ${replicas.join(', ')}`)
}

function printOne(output: Output, replica: ReplicaState, now: Date): void {
  const { name, version, appVersion, host, pid, pod, startedAt, lifecycles, loopMs, tickMs, leased = [] } = replica
  output.line(`${name}: ${replica.live ? 'live' : 'dead'}, seen ${fromNow(replica.seenAt, now)}`)
  output.line()
  output.table(
    ['app', 'phaselock', 'host', 'pid', 'pod', 'started', 'tick', 'longest stop of its loop'],
    [
      [
        ...[appVersion, version, host, pid, pod].map((value) => String(value ?? '-')),
        ...[startedAt ? fromNow(startedAt, now) : '-', ms(tickMs), ms(loopMs)],
      ],
    ],
  )
  output.line()
  output.table(
    ['lifecycle', 'definition', 'phases', 'places', 'free', 'held'],
    lifecycles.map(({ name: lifecycle, graph, phases, places, free, held }) => [
      ...[lifecycle, valueText(graph ?? '-'), Array.isArray(phases) ? phases.join(', ') : '-'],
      ...[places, free, held].map((value) => valueText(value ?? '-')),
    ]),
  )
  if (leased.length === 0) return
  output.line()
  output.table(
    ['leased by it', 'phase', 'lease ends'],
    leased.map(({ lifecycle, _id, phase, until }) => [nameOf({ lifecycle, _id }), phase, fromNow(until, now)]),
  )
}

const placesOf = ({ name, held, free }: LifecycleOfReplica): string =>
  held === undefined ? name : `${name} (${valueText(held)}, ${valueText(free ?? '-')})`

const ms = (value: number | undefined): string => (value === undefined ? '-' : formatMs(value))

function seenText({ live, seenAt, leased = [] }: ReplicaState, now: Date): string {
  const seen = fromNow(seenAt, now)
  if (live) return seen
  return `${seen}: dead${leased.length > 0 ? `, ${leased.length} still leased by it` : ''}`
}
