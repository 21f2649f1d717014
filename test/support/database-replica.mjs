/**
 * A replica for tests that kill one: connects to the local database of the folder given as its argument (with the built package), prints
 * one JSON line, and lives until it is killed. SIGTERM closes the connection first.
 */
import { connectDatabase } from '../../dist/database/index.js'

const log = (message, fields) => process.stderr.write(`${JSON.stringify({ message, ...fields })}\n`)
const connection = await connectDatabase({ dataDir: process.argv[2], log })
process.on('SIGTERM', async () => {
  await connection.close()
  process.exit(0)
})
process.stdout.write(`${JSON.stringify({ uri: connection.uri, source: connection.source })}\n`)
