import { type Command } from 'commander'
import { changeLockTimeout, encodeSleepsAnew, type LockTimeoutChange, termsOf } from '../../lock/index.js'
import { NotFound, Refused, UsageError } from '../../operations/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { durationMs, formatMs, InvalidDuration } from '../../time/index.js'
import { type CliContext, inWorkspace, type Options } from '../context.js'
import type { Workspace } from '../workspace.js'
import { examples, withDatabase } from './document-command.js'

const LEAST_MS = 1_000
const MOST_MS = 86_400_000

export function registerSetLockTimeout(program: Command, context: CliContext): void {
  const command = program
    .command('set-lock-timeout')
    .description('change the lockTimeout in force of a lifecycle, while its replicas run; no lease is stolen')
    .argument('<lifecycle>', 'which kind of document')
    .argument('<duration>', 'from 1s to 24h, such as 45s or 2m')
    .action((lifecycle: string, duration: string, options: Options) =>
      setLockTimeout(context, lifecycle, duration, options),
    )
  withDatabase(command).addHelpText('after', examples('set-lock-timeout api-gateway 1m', 'set-lock-timeout thing 15s'))
}

async function setLockTimeout(context: CliContext, name: string, duration: string, options: Options): Promise<void> {
  const ms = lockTimeoutFrom(duration)
  await inWorkspace(context, options, async (workspace) => {
    const { model } = workspace.lifecycle(name)
    const change = await changeLockTimeout(workspace.connection.db, name, ms)
    requireDone(name, change)
    const woken =
      change.kind === 'changed' && ms > change.wasMs ? await wakeInTime(workspace, model, ms, change.wasMs) : 0
    if (options['json']) {
      context.output.json({ lifecycle: name, lockTimeoutMs: ms, ...change, sleepsEncodedAnew: woken })
    } else context.output.line(`${name}: ${sentence(change, ms, model)}`)
  })
}

/** @throws UsageError */
function lockTimeoutFrom(text: string): number {
  try {
    const ms = durationMs(text)
    if (ms >= LEAST_MS && ms <= MOST_MS) return ms
  } catch (error) {
    if (!(error instanceof InvalidDuration)) throw error
  }
  throw new UsageError(`expected a lockTimeout from 1s to 24h, such as 45s or 2m, got '${text}'; nothing was changed`)
}

function requireDone(name: string, change: LockTimeoutChange): void {
  if (change.kind === 'notRegistered') {
    throw new NotFound(
      `no replica of ${name} has run in this database yet: set lockTimeout in its definition, the first replica registers it`,
    )
  }
  if (change.kind === 'underWay') {
    const leftMs = change.until.getTime() - change.now.getTime()
    throw new Refused(
      `the lockTimeout of ${name} is being changed already, until ${change.until.toISOString()}; try again in ${formatMs(leftMs)}`,
    )
  }
}

/** A sleep is encoded with the lockTimeout; with a longer one it would last longer by the difference. */
function wakeInTime(workspace: Workspace, model: LifecycleModel, ms: number, wasMs: number): Promise<number> {
  const { progress, legacyWriters } = model.settings
  const collection = workspace.connection.db.collection(model.collection)
  return encodeSleepsAnew(collection, termsOf(ms, { progress, legacyWriters }), [...model.phases.keys()], wasMs)
}

function sentence(change: LockTimeoutChange, ms: number, model: LifecycleModel): string {
  if (change.kind !== 'changed') return `lockTimeout is ${formatMs(ms)} already`
  const from = `${change.inForceFrom.toISOString()} (in ${formatMs(change.inForceFrom.getTime() - change.now.getTime())})`
  const definition =
    ms === model.settings.lockTimeoutMs ? '' : `; its definition says ${formatMs(model.settings.lockTimeoutMs)}`
  const how =
    ms > change.wasMs
      ? `crashed replicas' documents wait for that long at once; leases last that long from ${from}`
      : `leases last that long at once; crashed replicas' documents wait for ${formatMs(change.wasMs)} until ${from}`
  return `lockTimeout ${formatMs(change.wasMs)} -> ${formatMs(ms)}: ${how}${definition}`
}
