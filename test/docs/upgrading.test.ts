import { expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { lifecycleOf, Replica } from '../../src/index.js'
import { backDate } from '../../src/testing/index.js'
import { useDatabase } from '../support/database.js'
import { readPage } from './page.js'

interface Parcel {
  _id: string
  state?: 'Wanted' | 'Cancelled'
}

const parcel = lifecycleOf<Parcel>().define({
  name: 'parcel',
  collection: 'Parcel',
  phases: {
    Packing: { next: ['Sent'], deadline: { after: '1h', moveTo: 'Returning', setState: 'Cancelled' } },
    Sent: { rest: true },
    Returning: { next: ['Returned'] },
    Returned: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Cancelled', from: ['Packing', 'Sent'], moveTo: 'Returning' }],
  legacyWriters: true,
  backOff: { afterSteps: 10 },
})

const database = useDatabase()

/** Names in back quotes of the first cell of each row of the contract's table. */
const documented = (page: string) =>
  [...page.slice(page.indexOf('## The contract')).matchAll(/^\| (`.+?`) \|/gm)].flatMap(([, names]) =>
    [...names!.matchAll(/`([^`]+)`/g)].map(([, name]) => name!),
  )

test('the contract lists just the fields that a replica writes', async () => {
  const { db } = database
  const written = new Set<string>()
  const entries = new Set<string>()
  const collect = async () => {
    for (const document of await db.collection<Document>('Parcel').find().toArray()) {
      for (const name of Object.keys(document)) if (name !== '_id') written.add(name)
      for (const name of Object.keys(document['progress'])) written.add(`progress.${name}`)
      for (const entry of document['progress'].history ?? []) for (const name of Object.keys(entry)) entries.add(name)
      for (const name of Object.keys(document['progress'].error ?? {})) entries.add(name)
    }
  }
  const replica = new Replica({
    db,
    lifecycles: [
      parcel.handle({
        async Packing(doc, step) {
          await collect()
          if (doc._id === 'waits') return step.wait('rain', { for: '10m', on: 'weather' })
          if (doc._id === 'fails') throw new Error('no')
          if (doc._id === 'parks') return step.park('no')
          if (doc._id === 'often' && !step.progress.steps) return step.again()
          if (step.name === undefined) return step.again({ step: 'wrap' })
          await step.checkpoint({})
          return step.moveTo('Sent')
        },
        Returning: async (_doc, step) => step.moveTo('Returned'),
      }),
    ],
  })
  const ids = ['waits', 'fails', 'parks', 'goes', 'late', 'often']
  await db.collection<Parcel>('Parcel').insertMany(ids.map((_id) => ({ _id, phase: 'Packing', state: 'Wanted' })))
  await expect(replica.runOnce()).rejects.toThrow('parcel often has taken 10 steps in a row')
  await collect()
  await backDate(db.collection('Parcel'), 3_700_000, { filter: { phase: 'Packing' } })
  await collect()
  await replica.runOnce()
  await collect()
  await replica.stop()

  const page = await readPage('docs/upgrading.md')
  expect([...written].sort()).toEqual(documented(page).sort())
  for (const name of entries) expect(page).toContain(`\`${name}\``)
  const [registered] = await db.collection('phaselock.lifecycles').find().toArray()
  for (const name of Object.keys(registered!)) expect(page).toContain(`\`${name}\``)
})
