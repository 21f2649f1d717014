import { requirePackages } from '../../config/index.js'
import { UsageError } from '../../operations/index.js'
import { openWorkspace, requireLifecycles } from '../workspace.js'
import { printBanner } from './banner.js'
import { consoleToLog, rejectionsToLog } from './console-lines.js'
import { AnswerTokens } from './http/answer-tokens.js'
import { besideLifecycles, type StartOptions } from './options.js'
import { patiently } from './patiently.js'
import { runReplica } from './run-replica.js'
import { StopSignals } from './stop-signals.js'
import { type Supervisor, supervise } from './workers/supervise.js'

/**
 * Runs one replica, or several in processes of their own, until it is asked to stop, and stops in order (docs/lock-protocol.md,
 * shutdown). Resolves when everything is closed; a stop before it has begun to work ends it immediately.
 */
export async function start(options: StartOptions): Promise<void> {
  const { logger, output, settings } = options
  requireLifecycles(settings)
  if (settings.earlyRecovery === 'on') {
    requirePackages('phaselock start --early-recovery', ['@kubernetes/client-node'])
    // Reports missing requirements before anything is opened.
    await besideLifecycles(settings)
  }
  if (settings.answerTokens !== undefined) {
    if (settings.http === undefined)
      throw new UsageError('expected --http too, where /questions of --answer-tokens is, got none')
    await AnswerTokens.of(settings.answerTokens)
  }
  consoleToLog(logger)
  let crew: Supervisor | undefined
  const exitNow = (code: number) => {
    crew?.kill()
    process.exit(code)
  }
  const signals = new StopSignals(logger, undefined, exitNow).listen().watchParent(options.env)
  rejectionsToLog(logger)
  let isOver = false
  const onCrew = (made: Supervisor) => {
    crew = made
    if (isOver) void made.stop() // so that it starts no workers
  }
  const work = settings.workers > 1 ? supervise(options, onCrew) : run(options)
  const running = await Promise.race([work, signals.stopped])
  if (typeof running === 'string') {
    isOver = true
    work.catch(() => undefined)
    return crew?.stop()
  }
  await Promise.race([signals.stopped, ...('over' in running ? [running.over] : [])])
  await running.stop()
  if (!options.json) output.line('stopped')
}

/** Runs a replica. `over` resolves after the requested number of ticks; it is undefined if the replica has no such limit. */
async function run(options: StartOptions): Promise<{ stop(): Promise<void>; over?: Promise<void> }> {
  const { logger, ticks } = options
  const { promise: over, resolve } = Promise.withResolvers<void>()
  let left = ticks ?? Number.POSITIVE_INFINITY
  const ticked = () => {
    left -= 1
    if (left <= 0) resolve()
  }
  return await patiently(options.settings, logger, async (settings) => {
    const workspace = await openWorkspace({ ...options, settings })
    const running = await runReplica(workspace, settings, logger, false, ticks === undefined ? [] : [{ ticked }])
    await printBanner(options, workspace, { identity: running.replica.identity, http: running.http })
    return ticks === undefined ? running : { ...running, over }
  })
}
