import { describe, expect, test } from '@jest/globals'
import { lifecycleOf } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf } from '../support/thing.js'

interface Report {
  _id: string
  state?: 'Deleted'
  title: string
  body: string
  pages?: number
}

const spec = {
  name: 'report',
  collection: 'Report',
  phases: { Rendering: { next: ['Rendered'] }, Rendered: { rest: true } },
  reads: ['title'],
} as const

describe('a lifecycle that names what its handlers read', () => {
  const database = useDatabase()

  test.each([1, 3])(
    'handlers get that and what is Phaselock\u2019s, of %d documents, and nothing that was not read is lost',
    async (n) => {
      const seen: object[] = []
      const lifecycle = lifecycleOf<Report>()
        .define(spec)
        .handle({
          async Rendering(doc, step) {
            seen.push(doc)
            return step.name === undefined ? step.again({ step: 'second', set: { pages: 2 } }) : step.moveTo('Rendered')
          },
        })
      const collection = database.db.collection<Report & { phase: string }>('Report')
      const body = 'x'.repeat(10_000)
      await collection.insertMany(
        Array.from({ length: n }, (_, i) => ({ _id: `r${i}`, phase: 'Rendering', title: 't', body })),
      )
      const replica = replicaOf(database.db, lifecycle)
      await replica.runOnce()
      await replica.stop()
      expect(seen).toHaveLength(2 * n)
      for (const doc of seen) {
        expect(doc).toMatchObject({ phase: 'Rendering', title: 't', progress: { claims: 1 } })
        expect(doc).not.toHaveProperty('body')
      }
      expect(await collection.countDocuments({ phase: 'Rendered', title: 't', body, pages: 2 })).toBe(n)
    },
  )

  test('a name that is no top-level field is refused when the lifecycle is defined', () => {
    const reads = ['title.first'] as never
    expect(() => lifecycleOf<Report>().define({ ...spec, reads })).toThrow(
      /reads.0: expected the name of a top-level field/,
    )
    // @ts-expect-error no field of the document
    expect(() => lifecycleOf<Report>().define({ ...spec, reads: ['titel'] })).not.toThrow()
  })
})
