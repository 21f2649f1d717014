/** Phaselock without Nest: a replica that works on web sites until all are Created, then deletes one. */
import { setTimeout as sleep } from 'node:timers/promises'
import { lifecycleOf, Replica } from 'phaselock'
import { connectDatabase, renewalClient } from 'phaselock/database'

/** A web site as its owner writes it. */
interface Site {
  _id: string
  state?: 'Running' | 'Deleted'
  folder?: string
}

const site = lifecycleOf<Site>().define({
  name: 'site',
  collection: 'Site',
  phases: {
    Creating: { next: ['Created'], deadline: { after: '5m', moveTo: 'Deleting', setState: 'Deleted' } },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
})

/** Stands for the outside world: a name server that takes a moment. Asking for the same name twice is harmless. */
const askedAt = new Map<string, number>()

function nameIsServed(name: string): boolean {
  const asked = askedAt.get(name) ?? Date.now()
  askedAt.set(name, asked)
  return Date.now() - asked > 500
}

/** Each step may run again after a crash, so each is written to find its own work done. */
const sites = site.handle({
  async Creating(doc, step) {
    if (!doc.folder) return step.again({ step: 'serve the name', set: { folder: `/srv/${doc._id}` } })
    if (!nameIsServed(doc._id)) return step.wait('the name is not served yet')
    return step.moveTo('Created')
  },

  async Deleting(doc, step) {
    askedAt.delete(doc._id)
    return step.moveTo('Deleted')
  },
})

const connection = await connectDatabase() // MONGODB_URI, else a local database
const renewals = await renewalClient(connection) // leases are renewed over a connection of their own
console.log(`database: ${connection.source}`)

const replica = new Replica({
  db: connection.db,
  renewalDb: renewals.db(connection.db.databaseName),
  lifecycles: [sites],
  observer: {
    stepEnded: ({ id, phase, to, step, outcome, reason }) =>
      console.log(`  ${id}: ${step ?? phase}: ${reason ?? (to === phase ? outcome : `goes to ${to}`)}`),
    ruled: ({ state, to }) => console.log(`  its owner wants ${state}: it goes to ${to}`),
  },
})
await replica.start()

const collection = connection.db.collection<Site & { phase: string }>('Site')
const names = ['ann', 'bea', 'cem'].map((name) => `${name}-${process.pid}.example.org`)

console.log('three sites are inserted; any client may do that, in any language')
await collection.insertMany(names.map((name) => ({ _id: name, phase: 'Creating' })))
await everyOne(names, 'Created')

console.log('the owner of the first one does not want it any more')
await sites.setState(names[0]!, 'Deleted')
await everyOne(names.slice(0, 1), 'Deleted')

console.log('what the documents say:')
for (const doc of await collection.find({ _id: { $in: names } }).toArray()) {
  console.log(`  ${doc._id}: ${doc.phase}, ${doc.folder}`)
}

await replica.stop()
await connection.close()

/** Waits until all of these documents are in a phase, half a minute at most. */
async function everyOne(ids: string[], phase: string): Promise<void> {
  for (let tries = 0; tries < 300; tries += 1) {
    if ((await collection.countDocuments({ _id: { $in: ids }, phase })) === ids.length) return
    await sleep(100)
  }
  throw new Error(`expected ${ids.join(', ')} to be ${phase} within 30 s`)
}
