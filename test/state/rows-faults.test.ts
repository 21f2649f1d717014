import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from '@jest/globals'
import { SharedStore } from '../../packages/state/src/index.js'
import { rowsOfBatch } from '../../packages/state/src/rows/import-rows.js'
import {
  csv,
  eachRow,
  importRows,
  query,
  ROWS_COLLECTION,
  type RowsPlace,
  removeRows,
  rowLoop,
} from '../../packages/state/src/rows/index.js'
import { StepAborted } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { gate } from '../support/thing.js'

const ana = { by: 'ana' }
const numbers = (count: number) =>
  query(async function* () {
    for (let n = 1; n <= count; n += 1) yield { n }
  })

describe('csv', () => {
  const database = useDatabase()
  let names = 0
  /** In one part, or in parts of one byte. */
  const imported = async (content: string, isCut: boolean) => {
    const parts = isCut ? [...Buffer.from(content)].map((byte) => Buffer.of(byte)) : [Buffer.from(content)]
    const name = `n${++names}`
    const { bad, badRows } = await importRows(
      database.db,
      name,
      csv(() => Readable.from(parts)),
      ana,
    )
    const good = (await rowsOfBatch(database.db, name, 0)).map(([number]) => number)
    expect(bad).toBe(badRows.length)
    return { good, bad: badRows.map(({ number }) => number) }
  }

  test.each([
    ['a quote in a cell', 'id,n\n1,a\n2,b"c\n3,d', [1, 3], [2]],
    ['two quotes in a cell', 'id,n\n5" x 6",a\n2,b', [2], [1]],
    ['two quotes in two cells', 'id,n\n1,2\n5" x,6"\n3,4', [1, 3], [2]],
    ['bad rows behind each other', 'id,n\n5" x,a\n6" x,b\n1,7"\n4,d', [4], [1, 2, 3]],
    ['a quote in a quoted cell', 'id,n\n1,a\n"5" x 6",b\n3,"c"', [1, 3], [2]],
    ['a bad row at the end', 'id,n\n1,a\n2,5"', [1], [2]],
  ])('%s makes one bad row, and the others keep their numbers', async (_what, content, good, bad) => {
    expect(await imported(content, false)).toEqual({ good, bad })
    expect(await imported(content, true)).toEqual({ good, bad })
  })

  test.each([
    ['a quote that is not closed', 'id,n\n1,a\n2,"b\n3,c\n4,d', 'got one in line 3 or below that is open at the end'],
    [
      'a stray quote that makes one cell of several rows',
      'id,n\n1,"a"b\n2,c\n3,"d"\n4,e',
      'got a single one in line 2: the lines up to 4 would be one cell',
    ],
    ['a row of 2 MB', `id,n\n1,a\n2,${'x'.repeat(2_000_000)}\n3,c`, 'at line 3'],
    ['a bad head', 'id,n"o\n1,a', 'expected the names of columns, got: Invalid Opening Quote'],
  ])('%s fails the import', async (_what, content, problem) => {
    const failing = importRows(
      database.db,
      'x',
      csv(() => Readable.from([Buffer.from(content)])),
      ana,
    )
    await expect(failing).rejects.toMatchObject({ name: 'UnusableSource', message: expect.stringContaining(problem) })
  })
})

describe('eachRow', () => {
  const ends = useEnds()
  const database = useDatabase()

  test.each([
    ['shutdown', 0],
    ['step timeout', 1],
  ] as const)('a row that rejects because of %s has used %d tries', async (why, tries) => {
    await importRows(database.db, 'n', numbers(3), ana)
    const stopping = new AbortController()
    const places: RowsPlace[] = []
    const step = {
      signal: stopping.signal,
      checkpoint: async ({ rows }: { rows: RowsPlace }) => void places.push(rows),
    }
    const each = async (_row: unknown, { number, signal }: { number: number; signal: AbortSignal }) => {
      if (number < 2) return
      stopping.abort(new StepAborted(why))
      signal.throwIfAborted()
    }
    const handled = eachRow({ _id: 1 }, step as never, { rows: { db: database.db, name: 'n' }, each })
    await expect(handled).rejects.toMatchObject({ name: 'StepAborted' })
    expect(places.at(-1)).toMatchObject({ index: 1, handled: 1, tries })
  })

  test('a place in rows that were removed and imported again is NoRows', async () => {
    const { db } = database
    await importRows(db, 'n', numbers(3), ana)
    let place: RowsPlace | undefined
    const step = {
      signal: new AbortController().signal,
      checkpoint: async ({ rows }: { rows: RowsPlace }) => {
        place = rows
      },
    }
    const failing = () => Promise.reject(new Error('no'))
    const rows = { db, name: 'n' }
    await expect(eachRow({ _id: 1 }, step as never, { rows, each: failing })).rejects.toThrow('no')
    const store = new SharedStore({ client: db })
    ends.push(() => store.close())
    const loop = rowLoop({ db, store, session: 's' })
    await loop.begin('n')
    expect(await removeRows(db, 'n')).toBe(true)
    await sleep(2)
    await importRows(db, 'n', numbers(3), ana)
    const gone = { name: 'NoRows', message: expect.stringContaining('they were removed and imported again') }
    const again = eachRow({ _id: 1, rows: place }, step as never, { rows, each: () => undefined })
    await expect(again).rejects.toMatchObject(gone)
    await expect(loop.rows().next()).rejects.toMatchObject(gone)
  })

  test('rows are not removed in the middle of their import', async () => {
    const { db } = database
    const [begun, over] = [gate(), gate()]
    const source = query(async function* () {
      for (let n = 1; n <= 1_200; n += 1) yield { n }
      begun.open()
      await over.wait
    })
    const importing = importRows(db, 'n', source, ana)
    await begun.wait
    const removing = removeRows(db, 'n')
    await sleep(100)
    over.open()
    expect(await importing).toMatchObject({ state: 'complete', rows: 1_200 })
    expect(await removing).toBe(true)
    expect(await db.collection(ROWS_COLLECTION).countDocuments()).toBe(0)
  })
})
