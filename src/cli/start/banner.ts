import { packageVersion } from '../../config/index.js'
import { ALPHA_NOTICE, type DatabaseConnection, redactUri } from '../../database/index.js'
import type { Workspace } from '../workspace.js'
import type { StartOptions } from './options.js'
import { pasteLines } from './paste-lines.js'

/** The mode of a replica, and why: distributed over all that reach a server, or single, on a database of this machine. */
function modeLine({ source, dataPath }: DatabaseConnection, { settings, env }: StartOptions): string {
  const locks = settings.mode === 'single' ? '; named locks in memory, by PHASELOCK_MODE' : ''
  if (source !== 'uri')
    return `single: MONGODB_URI is not set, so only processes of this machine share ${dataPath}${locks}`
  return `distributed: ${settings.uri === env['MONGODB_URI']?.trim() ? 'MONGODB_URI is set' : '--uri is given'}${locks}`
}

/**
 * Logs the mode, and prints the addresses of everything with lines to paste that show it at work.
 * @param started the replica in this process or the workers in theirs, and the web server's `http://host:port` if it runs
 */
export async function printBanner(
  options: StartOptions,
  { connection, lifecycles }: Workspace,
  started: { identity?: string; workers?: readonly string[]; http: string | undefined },
): Promise<void> {
  const { output, settings, json, logger } = options
  const { identity, workers, http } = started
  logger.info(modeLine(connection, options))
  const version = await packageVersion()
  const models = lifecycles.map(({ model }) => model)
  const lines = pasteLines(connection, models[0]!)
  if (json) {
    output.json({
      version,
      identity: identity ?? null,
      ...(workers && { workers }),
      database: connection.db.databaseName,
      uri: redactUri(connection.uri),
      source: connection.source,
      data: connection.dataPath ?? null,
      lifecycles: models.map((model) => model.name),
      http: http ?? null,
      paste: lines,
    })
    return
  }
  const engine = connection.source === 'embedded' ? ` (${ALPHA_NOTICE})` : ''
  const rows: [string, string][] = [
    workers ? ['workers', `${workers.length}: ${workers.join(', ')}`] : ['replica', identity ?? ''],
    ['data', connection.dataPath ? `${connection.dataPath}${engine}` : 'on the server'],
    ['mongodb', redactUri(connection.uri)],
    ['database', connection.db.databaseName],
    ['lifecycles', models.map((model) => `${model.name} (${model.collection})`).join(', ')],
    [
      'http',
      http
        ? `${http}/livez /readyz /metrics${settings.answerTokens === undefined ? '' : ' /questions'}`
        : 'off (--http <port>)',
    ],
  ]
  output.line(`Phaselock ${version} is running; Ctrl-C stops it. In another terminal:`)
  output.line(`  ${lines.commands}`)
  output.line(`or in mongosh (${lines.mongosh}):`)
  for (const line of lines.inMongosh) output.line(`  ${line}`)
  output.line()
  for (const [name, value] of rows) output.line(`  ${name.padEnd(10)}  ${value}`)
  output.line()
}
