import { describe, expect, jest, test } from '@jest/globals'
import { flowOf, Replica, silentLogger } from '../../src/index.js'
import { Operations, operationLifecycle } from '../../src/operations/public.js'
import { useDatabase } from '../support/database.js'

jest.setTimeout(60_000)

interface Night {
  _id: string
  day: string
  fails?: boolean
}

const nightly = flowOf<Night>().define({
  name: 'nightly',
  collection: 'Nightly',
  tasks: { extract: {}, clean: { after: ['extract'] }, alert: { after: ['extract'], when: 'oneFailed' } },
})

describe('a run of a flow that had ended', () => {
  const database = useDatabase()

  async function ended(night: Night) {
    const ran: string[] = []
    const noted = (name: string): Parameters<typeof nightly.handle>[0]['clean'] => {
      return async ({ run }, step) => {
        ran.push(`${name} of ${run.day}`)
        return step.moveTo(run.fails && name === 'extract' ? 'Failed' : 'Succeeded')
      }
    }
    const handlers = { extract: noted('extract'), clean: noted('clean'), alert: noted('alert') }
    const lifecycles = [...nightly.handle(handlers), operationLifecycle({ db: database.db })] as const
    const replica = new Replica({ db: database.db, lifecycles, logger: silentLogger })
    await replica.prepare()
    const [runs] = lifecycles
    await runs.insert(night)
    await replica.runOnce()
    return {
      runs,
      replica,
      ran: () => ran.splice(0),
      run: () => runs.owner().documents.findOne({ _id: night._id as never }),
    }
  }

  test('and is inserted with runAgain begins all its tasks again, with the new fields', async () => {
    const { runs, replica, ran, run } = await ended({ _id: 'n', day: 'monday', fails: true })
    expect(ran()).toEqual(['extract of monday', 'alert of monday'])
    const again = { _id: 'n', day: 'tuesday', fails: false } as const
    expect(await runs.insert(again, { onDuplicate: 'runAgain' })).toMatchObject({ kind: 'restarted' })
    await replica.runOnce()
    expect(ran()).toEqual(['extract of tuesday', 'clean of tuesday'])
    const tasks = { extract: 'succeeded', clean: 'succeeded', alert: 'skipped' }
    expect(await run()).toMatchObject({ phase: 'Succeeded', day: 'tuesday', tasks })
    expect(await run()).not.toHaveProperty('redoing')
  })

  test('and is redone without a list of tasks begins all of them again; with one, those, which may be none', async () => {
    const { runs, replica, ran, run } = await ended({ _id: 'n', day: 'monday' })
    expect(ran()).toEqual(['extract of monday', 'clean of monday'])
    const operations = new Operations({ db: database.db, lifecycles: [runs] })
    const redo = async (set: Record<string, unknown>) => {
      const selection = { lifecycle: 'nightly', all: true } as const
      await operations.begin({
        action: 'redo',
        selection,
        options: { phase: 'Running', set },
        by: 'ana',
        reason: 'test',
      })
      await replica.runOnce()
    }
    await redo({ day: 'tuesday' })
    expect(ran()).toEqual(['extract of tuesday', 'clean of tuesday'])
    await redo({ day: 'sunday', redo: ['clean'] })
    expect(ran()).toEqual(['clean of sunday'])
    expect(await run()).toMatchObject({ phase: 'Succeeded', tasks: { extract: 'succeeded', clean: 'succeeded' } })
    await redo({ redo: [] }) // names none
    expect([ran(), await run()]).toMatchObject([[], { phase: 'Succeeded' }])
    expect(await run()).not.toHaveProperty('redo')
  })
})
