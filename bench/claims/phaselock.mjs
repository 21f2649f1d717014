import { connectDatabase, renewalClient } from '../../dist/database/index.js'
import { lifecycleOf, Replica } from '../../dist/index.js'
import { COLLECTION, documentsOf } from './mongo-documents.mjs'

/** Documents of a lifecycle, claimed and recorded in groups under tokens. */
export const about = 'one findOneAndUpdate or a batch under a token, MongoDB { w: 1, j: true } (a server alone)'

export const { prepare, remaining, doneBy, drop } = documentsOf('mongo')

const lifecycle = (leaseMs) =>
  lifecycleOf().define({
    name: 'thing',
    collection: COLLECTION,
    lockTimeout: `${leaseMs}ms`,
    phases: { Queued: { next: ['Done'] }, Done: { rest: true } },
  })

export async function work({ servers, space, leaseMs, name }, workOn) {
  // With the limits of the usual lease, 30 s: those of a quick run's lease would take a busy machine for an outage.
  const connection = await connectDatabase({ uri: servers.mongo, database: space, env: {}, log: () => undefined })
  const renewals = await renewalClient(connection)
  const replica = new Replica({
    db: connection.db,
    renewalDb: renewals.db(space),
    lifecycles: [
      lifecycle(leaseMs).handle({
        async Queued({ number }, step) {
          await workOn(number)
          return step.moveTo('Done', { set: { doneBy: name } })
        },
      }),
    ],
    grace: '0s',
  })
  await replica.start()
  return async () => {
    await replica.stop()
    await connection.close()
  }
}
