import type { Command } from 'commander'
import { type LockTimeoutSet, modelOf, setLockTimeout } from '../../operations/index.js'
import { formatMs } from '../../time/index.js'
import { byAndReason } from '../by.js'
import { type CliContext, type Options, onSystem } from '../context.js'
import { print, withDatabase } from './command.js'

export function registerSetLockTimeout(program: Command, context: CliContext): void {
  const command = program
    .command('set-lock-timeout')
    .description('change the lockTimeout in force for a lifecycle while its replicas run; no lease is stolen')
    .argument('<lifecycle>', 'the kind of document')
    .argument('<duration>', 'from 1s to 24h, such as 45s or 2m')
    .action((lifecycle: string, duration: string, options: Options) =>
      onSystem(context, options, async (system) => {
        const done = await setLockTimeout(system, lifecycle, duration)
        const definedMs = modelOf(system, lifecycle).settings.lockTimeoutMs
        print(context, options, done, `${lifecycle}: ${sentence(done, definedMs)}`)
      }),
    )
  withDatabase(byAndReason(command), ['set-lock-timeout api-gateway 1m', 'set-lock-timeout thing 15s'])
}

function sentence(done: LockTimeoutSet, definedMs: number): string {
  const { lockTimeoutMs: ms } = done
  if (done.kind === 'unchanged') return `lockTimeout is already ${formatMs(ms)}`
  const { wasMs, inForceFrom, now } = done
  const from = `${inForceFrom.toISOString()} (in ${formatMs(inForceFrom.getTime() - now.getTime())})`
  const definition = ms === definedMs ? '' : `; its definition says ${formatMs(definedMs)}`
  const how =
    ms > wasMs
      ? `documents of crashed replicas wait that long from now on; leases last that long from ${from}`
      : `leases last that long from now on; documents of crashed replicas wait ${formatMs(wasMs)} until ${from}`
  return `lockTimeout ${formatMs(wasMs)} -> ${formatMs(ms)}: ${how}${definition}`
}
