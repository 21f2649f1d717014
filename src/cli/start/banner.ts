import { ALPHA_NOTICE, type DatabaseConnection, redactUri } from '../../database/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import type { Output } from '../output.js'
import { pasteLines } from './paste-lines.js'

/** What a replica that has started tells of itself. */
export interface Started {
  readonly version: string
  readonly identity: string
  readonly connection: DatabaseConnection
  readonly models: readonly LifecycleModel[]
  /** `http://host:port` when the web server runs. */
  readonly http: string | undefined
}

/** Prints where everything is, and lines to paste that show it at work. */
export function printBanner(output: Output, started: Started, json: boolean): void {
  const { version, identity, connection, models, http } = started
  const lines = pasteLines(connection, models[0]!)
  if (json) {
    output.json({
      version,
      identity,
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
    ['replica', identity],
    ['data', connection.dataPath ? `${connection.dataPath}${engine}` : 'on the server'],
    ['mongodb', redactUri(connection.uri)],
    ['database', connection.db.databaseName],
    ['lifecycles', models.map((model) => `${model.name} (${model.collection})`).join(', ')],
    ['http', http ? `${http}/livez /readyz /metrics` : 'off (--http <port>)'],
  ]
  output.line(`Phaselock ${version} is running; Ctrl-C stops it.`)
  for (const [name, value] of rows) output.line(`  ${name.padEnd(10)}  ${value}`)
  output.line()
  output.line('Insert a document and watch it. With Node, in this folder:')
  output.line(`  ${lines.node}`)
  output.line(`With mongosh (${lines.mongosh}):`)
  for (const line of lines.inMongosh) output.line(`  ${line}`)
  output.line('Or with the command line:')
  output.line(`  phaselock add ${models[0]!.name} && phaselock list ${models[0]!.name}`)
  output.line()
}
