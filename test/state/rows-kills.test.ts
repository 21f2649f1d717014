import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { describe, expect, jest, test } from '@jest/globals'
import { importRows, quarantinedRows, query } from '../../packages/state/src/rows/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'

jest.setTimeout(900_000)

const PROCESS = fileURLToPath(new URL('rows-process.mjs', import.meta.url))
const ROWS = 20_000
const KILL_EACH = 1_000

describe('a loop over 20,000 rows', () => {
  const ends = useEnds()
  const database = useDatabase()

  test('whose process is killed each 1,000 rows records each row once, and loses only the row that kills', async () => {
    const rows = query(async function* () {
      for (let n = 1; n <= ROWS; n += 1) yield { n }
    })
    await importRows(database.db, 'n', rows, { by: 'ana' })
    const imports = database.db.collection<{ _id: string; phase?: string }>('Import')
    let child: ChildProcess | undefined
    let kills = 0
    const start = () => {
      let handled = 0
      const own = fork(PROCESS, {
        env: { ...process.env, MONGODB_URI: database.uri },
        stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      })
      child = own
      own.on('message', () => {
        handled += 1
        if (handled !== KILL_EACH) return
        kills += 1
        own.kill('SIGKILL')
      })
      void once(own, 'exit').then(() => {
        if (child === own) start()
      })
    }
    start()
    ends.push(() => {
      const last = child
      child = undefined
      last?.kill('SIGKILL')
    })
    await imports.insertOne({ _id: 'i1', phase: 'Running' })
    const isDone = async () => expect((await imports.findOne({ _id: 'i1' }))?.phase).toBe('Done')
    await eventually(isDone, { timeoutMs: 800_000, everyMs: 500 })

    expect(kills).toBeGreaterThan(10)
    expect(await quarantinedRows(database.db, 'n')).toEqual([
      {
        rows: 'n',
        document: 'i1',
        number: 777,
        cells: { n: 777 },
        problem: 'its process has ended 3 times while it was handled',
      },
    ])
    const seen = await database.db.collection<{ _id: number; n: number; times: number }>('Seen').find().toArray()
    expect(seen).toHaveLength(ROWS - 1)
    expect(seen.filter(({ _id, n }) => _id !== n)).toEqual([])
    // A row whose process was killed right after it is handled again; each kill repeats one at most.
    expect(seen.reduce((sum, { times }) => sum + times, 0)).toBeLessThanOrEqual(ROWS - 1 + kills + 3)
    expect(await imports.findOne({ _id: 'i1' })).toMatchObject({ rows: { handled: ROWS - 1, quarantined: 1 } })
  })
})
