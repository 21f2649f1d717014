import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals'
import { AppFolder } from './app-folder.js'

jest.setTimeout(300_000)

/** What an app that works, without Nest and metrics, may take. */
const MOST_PACKAGES = 20

describe('npm install phaselock', () => {
  let folder: AppFolder
  beforeAll(async () => {
    folder = await AppFolder.make([])
  })
  afterAll(() => folder?.remove())

  test(`brings ${MOST_PACKAGES} packages at most`, async () => {
    const { dependencies } = JSON.parse((await folder.run('npm', 'ls', '--all', '--json')).out)
    const found = new Set<string>()
    const walk = (all: Record<string, { version?: string; dependencies?: object }> = {}) => {
      for (const [name, one] of Object.entries(all)) {
        if (one.version === undefined || name === 'phaselock-local-database') continue // an optional one that isn't there
        found.add(name)
        walk(one.dependencies as never)
      }
    }
    walk({ phaselock: dependencies.phaselock })
    expect(found.size).toBeLessThanOrEqual(MOST_PACKAGES)
  })

  test('works from CommonJS, by require', async () => {
    await folder.write(
      'app.cjs',
      `const { lifecycleOf, Replica } = require('phaselock')
       const { connectDatabase } = require('phaselock/database')
       const order = lifecycleOf().define({
         name: 'order',
         collection: 'Order',
         phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
       })
       const orders = order.handle({ Creating: async (doc, step) => step.moveTo('Created') })
       async function main() {
         const connection = await connectDatabase()
         const replica = new Replica({ db: connection.db, lifecycles: [orders] })
         await orders.insert({ _id: 'o1' })
         await replica.runOnce()
         console.log((await orders.find('o1')).phase)
         await replica.stop()
         await connection.close()
       }
       main()`,
    )
    expect(await folder.run('node', 'app.cjs')).toMatchObject({ code: 0, out: 'Created\n' })
  })
})
