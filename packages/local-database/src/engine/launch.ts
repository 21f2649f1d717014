import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, statSync, truncateSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { type EngineFolder, programPath } from './folder.js'
import type { KeeperJob, KeeperReport } from './keeper-job.js'

const MAX_LOG_BYTES = 1024 * 1024

/**
 * Starts a keeper in its own session, so that neither Ctrl-C nor the end of this process reaches it. It gets none of our streams: its output
 * goes to the folder's log, and the pipe for its one report is closed as soon as that has arrived.
 */
export async function launchKeeper(folder: EngineFolder, job: Omit<KeeperJob, 'root'>): Promise<KeeperReport> {
  if ((statSync(folder.log, { throwIfNoEntry: false })?.size ?? 0) > MAX_LOG_BYTES) truncateSync(folder.log)
  const output = openSync(folder.log, 'a', 0o600)
  try {
    const keeper = spawn(
      process.execPath,
      [programPath('engine/keeper'), JSON.stringify({ ...job, root: folder.root })],
      {
        detached: true,
        stdio: ['ignore', output, output, 'pipe'],
        cwd: folder.root,
        env: { ...process.env, NODE_OPTIONS: '', NODE_V8_COVERAGE: '' },
      },
    )
    const pipe = keeper.stdio[3] as Readable
    const failed = once(keeper, 'error').then(([error]: unknown[]) => String(error))
    failed.catch(() => undefined)
    const report = await Promise.race([readReport(pipe), failed])
    pipe.destroy()
    keeper.unref()
    return typeof report === 'string' ? { kind: 'failed', said: report } : report
  } finally {
    closeSync(output)
  }
}

function readReport(pipe: Readable): Promise<KeeperReport | string> {
  return new Promise((resolve) => {
    let text = ''
    pipe.on('data', (chunk) => {
      text += chunk
      if (text.endsWith('\n')) resolve(JSON.parse(text) as KeeperReport)
    })
    pipe.on('error', () => undefined)
    pipe.on('close', () => resolve('its keeper ended without a word; see engine.log'))
  })
}
