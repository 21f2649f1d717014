/** One worker of `phaselock start --workers`: configured by its supervisor, and stops in order when that is gone. */
import { withFields } from '../../../phases/index.js'
import { lineLogger } from '../../line-logger.js'
import { exitCodeOf } from '../../report-error.js'
import { openWorkspace } from '../../workspace.js'
import { consoleToLog, rejectionsToLog } from '../console-lines.js'
import type { RunningReplica } from '../options.js'
import { patiently } from '../patiently.js'
import { runReplica } from '../run-replica.js'
import type { FromWorker, ToWorker, WorkerConfig } from './worker-link.js'

/** The time beyond the grace to write and close things. After it, a process whose supervisor is gone ends whatever its state. */
const CLOSING_MS = 15_000

const stop = Promise.withResolvers<string>()
let running: RunningReplica | undefined

// Ctrl-C and the end of a terminal reach all of its processes: the supervisor decides what happens to its workers.
for (const signal of ['SIGINT', 'SIGHUP']) process.on(signal, () => undefined)
process.on('SIGTERM', () => stop.resolve('SIGTERM'))
process.on('disconnect', () => stop.resolve('the supervisor is gone'))
process.on('message', (message: ToWorker) => {
  if (message.kind === 'ask') void answer(message)
  else void work(message.config)
})

function tell(message: FromWorker): void {
  if (process.connected) process.send?.(message, () => undefined)
}

async function answer({ ask, about }: Extract<ToWorker, { kind: 'ask' }>): Promise<void> {
  const answers = {
    life: () => [],
    readiness: () => running?.replica.status().notReady ?? ['starting'],
    paused: () => running?.replica.status().paused.map(({ text }) => text) ?? [],
    problems: () => running?.replica.status().problems ?? [],
    metrics: async () => (await running?.metrics?.registry.getMetricsAsJSON()) ?? [],
  }
  tell({ kind: 'answer', ask, answer: await answers[about]() })
}

async function work(config: WorkerConfig): Promise<void> {
  const { settings, cwd } = config
  const lines = lineLogger({ format: config.logFormat, level: settings.logLevel ?? 'info' })
  const logger = withFields(lines, { worker: settings.name })
  consoleToLog(logger)
  rejectionsToLog(logger)
  try {
    const starting = patiently(settings, logger, async (own) => {
      const workspace = await openWorkspace({ settings: own, cwd, env: process.env, logger })
      return await runReplica(workspace, own, logger, config.measured)
    })
    starting.then((started) => {
      running = started
      tell({ kind: 'ready', identity: started.replica.identity })
    }, failed)
    const why = await stop.promise
    logger.info(`${why}: no more claims; running steps may finish`)
    setTimeout(() => process.exit(1), settings.grace + CLOSING_MS).unref()
    await (await starting).stop()
  } catch (error) {
    return failed(error)
  }
  process.exit(0)
}

function failed(error: unknown): void {
  const { name, message } = error instanceof Error ? error : { name: 'Error', message: String(error) }
  const exitCode = exitCodeOf(error)
  const end = () => process.exit(exitCode)
  if (!process.connected) end()
  process.send?.({ kind: 'failed', name, message, exitCode } satisfies FromWorker, end)
}
