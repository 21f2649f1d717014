// Handles the rows of one document, and records each; killed by the test now and then. Row 777 kills its process each time.

import { lifecycleOf, Replica, silentLogger } from 'phaselock'
import { connectDatabase } from 'phaselock/database'
import { eachRow } from 'phaselock-state/rows'

const { db } = await connectDatabase({ uri: process.env.MONGODB_URI })
const seen = db.collection('Seen')
const definition = lifecycleOf().define({
  name: 'import',
  collection: 'Import',
  phases: { Running: { next: ['Done'] }, Done: { rest: true } },
  lockTimeout: '2s',
  maxClaims: 50,
})
const each = async (row, { number }) => {
  if (number === 777) process.kill(process.pid, 'SIGKILL')
  await seen.updateOne({ _id: number }, { $set: { n: row.n }, $inc: { times: 1 } }, { upsert: true })
  process.send?.(number)
}
const imports = definition.handle({
  Running: async (doc, step) => (await eachRow(doc, step, { rows: { db, name: 'n' }, each })) ?? step.moveTo('Done'),
})
const replica = new Replica({ db, lifecycles: [imports], logger: silentLogger })
await replica.start()
