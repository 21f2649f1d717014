import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { crc32 } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { SharedStore } from '../../packages/state/src/index.js'
import { rowsOfBatch } from '../../packages/state/src/rows/import-rows.js'
import {
  BadRow,
  csv,
  type EachRowOptions,
  eachRow,
  importRows,
  quarantinedRows,
  query,
  ROWS_COLLECTION,
  type Row,
  type RowSource,
  removeRows,
  rowLoop,
  rowsHead,
  xlsx,
} from '../../packages/state/src/rows/index.js'
import { lifecycleOf, Replica, silentLogger, Unavailable } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'

const ana = { by: 'ana' }
const text = (content: string | Buffer) => () => Readable.from([Buffer.from(content)])
const numbers = (count: number) =>
  query(async function* () {
    for (let n = 1; n <= count; n += 1) yield { n }
  })

/** An archive of uncompressed files, as .xlsx is one. */
function zip(files: Record<string, string>): Buffer {
  const parts: Buffer[] = []
  const central: Buffer[] = []
  let at = 0
  for (const [name, content] of Object.entries(files)) {
    const [data, path] = [Buffer.from(content), Buffer.from(name)]
    const common = Buffer.alloc(26)
    common.writeUInt16LE(20, 0)
    common.writeUInt32LE(crc32(data), 10)
    common.writeUInt32LE(data.length, 14)
    common.writeUInt32LE(data.length, 18)
    common.writeUInt16LE(path.length, 22)
    const head = Buffer.concat([Buffer.from('PK\x03\x04'), common, path])
    const entry = Buffer.alloc(46)
    entry.write('PK\x01\x02', 'latin1')
    entry.writeUInt16LE(20, 4)
    common.copy(entry, 6)
    entry.writeUInt32LE(at, 42)
    central.push(entry, path)
    parts.push(head, data)
    at += head.length + data.length
  }
  const directory = Buffer.concat(central)
  const end = Buffer.alloc(22)
  end.write('PK\x05\x06', 'latin1')
  end.writeUInt16LE(Object.keys(files).length, 8)
  end.writeUInt16LE(Object.keys(files).length, 10)
  end.writeUInt32LE(directory.length, 12)
  end.writeUInt32LE(at, 16)
  return Buffer.concat([...parts, directory, end])
}

const sheetOf = (rows: readonly (readonly (string | number)[])[]): Buffer => {
  const cell = (value: string | number) =>
    typeof value === 'number' ? `<c><v>${value}</v></c>` : `<c t="inlineStr"><is><t>${value}</t></is></c>`
  const lines = rows.map(
    (cells, r) =>
      `<row r="${r + 1}">${cells.map((value, c) => cell(value).replace('<c', `<c r="${String.fromCharCode(65 + c)}${r + 1}"`)).join('')}</row>`,
  )
  const main = 'http://schemas.openxmlformats.org/spreadsheetml/2006/main'
  const office = 'http://schemas.openxmlformats.org/officeDocument/2006/relationships'
  const packages = 'http://schemas.openxmlformats.org/package/2006'
  return zip({
    '[Content_Types].xml': `<Types xmlns="${packages}/content-types"><Default Extension="xml" ContentType="application/xml"/></Types>`,
    '_rels/.rels': `<Relationships xmlns="${packages}/relationships"><Relationship Id="r1" Type="${office}/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
    'xl/workbook.xml': `<workbook xmlns="${main}" xmlns:r="${office}"><sheets><sheet name="One" sheetId="1" r:id="r1"/></sheets></workbook>`,
    'xl/_rels/workbook.xml.rels': `<Relationships xmlns="${packages}/relationships"><Relationship Id="r1" Type="${office}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`,
    'xl/worksheets/sheet1.xml': `<worksheet xmlns="${main}"><sheetData>${lines.join('')}</sheetData></worksheet>`,
  })
}

describe('importRows', () => {
  const database = useDatabase()
  let folder = ''
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rows-'))
  })
  afterEach(() => rm(folder, { recursive: true }))
  const all = async (name: string) => {
    const { batches } = await rowsHead(database.db, name)
    return (await Promise.all(Array.from({ length: batches }, (_, i) => rowsOfBatch(database.db, name, i)))).flat()
  }

  test('of CSV: quotes, line ends in cells, a byte order mark, short rows; bad rows are kept apart with their numbers', async () => {
    const file = join(folder, 'orders.csv')
    await writeFile(file, '\ufeffid;name\r\n1;"a;b"\r\n2;"two\nlines"\r\n3\r\n4;x;too many\r\n5;"ok ""quoted"""\r\n')
    const head = await importRows(database.db, 'orders', csv(file, { delimiter: ';' }), ana)
    expect(head).toMatchObject({ state: 'complete', rows: 4, bad: 1, batches: 1, kind: 'csv', by: 'ana' })
    expect(head.badRows).toEqual([{ number: 4, problem: 'expected 2 cells, got 3', cells: ['4', 'x', 'too many'] }])
    expect(await all('orders')).toEqual([
      [1, { id: '1', name: 'a;b' }],
      [2, { id: '2', name: 'two\nlines' }],
      [3, { id: '3', name: null }],
      [5, { id: '5', name: 'ok "quoted"' }],
    ])
  })

  test('of .xlsx, with numbers as numbers', async () => {
    const sheet = sheetOf([
      ['id', 'n'],
      ['a', 1],
      ['b', 2.5],
    ])
    const head = await importRows(database.db, 'sheet', xlsx(sheet), ana)
    expect(head).toMatchObject({ rows: 2, bad: 0, kind: 'xlsx' })
    expect(await all('sheet')).toEqual([
      [1, { id: 'a', n: 1 }],
      [2, { id: 'b', n: 2.5 }],
    ])
  })

  test('stores a source once in batches of 1,000, of two processes at the same time too', async () => {
    let reads = 0
    const source: RowSource = {
      ...numbers(2_500),
      read: () => {
        reads += 1
        return numbers(2_500).read()
      },
    }
    const heads = await Promise.all([1, 2, 3].map(() => importRows(database.db, 'n', source, ana)))
    expect(heads.map(({ rows, batches }) => [rows, batches])).toEqual([
      [2_500, 3],
      [2_500, 3],
      [2_500, 3],
    ])
    expect(reads).toBe(1)
    expect((await all('n')).map(([number]) => number)).toEqual(Array.from({ length: 2_500 }, (_, i) => i + 1))
  })

  test('begins anew after a source that broke off, and leaves nothing of the first try', async () => {
    const breaks = query(async function* () {
      for (let n = 1; n <= 1_500; n += 1) yield { n }
      throw new Error('the connection is gone')
    })
    await expect(importRows(database.db, 'n', breaks, ana)).rejects.toThrow('the connection is gone')
    await expect(rowsHead(database.db, 'n')).rejects.toThrow(
      'expected the import of the rows n to be complete; ana has been at it since',
    )
    await importRows(database.db, 'n', numbers(10), ana)
    expect(await all('n')).toHaveLength(10)
    expect(await database.db.collection(ROWS_COLLECTION).countDocuments()).toBe(2)
    expect(await removeRows(database.db, 'n')).toBe(true)
    expect(await database.db.collection(ROWS_COLLECTION).countDocuments()).toBe(0)
    await expect(rowsHead(database.db, 'n')).rejects.toThrow(
      'expected rows under the name n, got none; import them with importRows',
    )
  })

  test('refuses sources that can not be read, and keeps rows apart that would not come back', async () => {
    const bad: [RowSource, string][] = [
      [csv(join(folder, 'nope.csv')), "the CSV can't be read: ENOENT"],
      [csv(text('')), 'expected a CSV with the names of its columns in the first line, got an empty one'],
      [csv(text('a,a\n1,2\n')), 'expected columns with names that differ, got a twice: a, a'],
      [csv(text('a,,c\n')), 'got one without a name'],
      [xlsx(join(folder, 'nope.xlsx')), 'expected a file, got'],
      [xlsx(Buffer.from('no zip')), "the .xlsx file can't be read"],
      [xlsx(Buffer.alloc(21 * 1024 * 1024)), 'expected an .xlsx file of at most 20 MB, got 21.0 MB; save it as CSV'],
    ]
    for (const [source, problem] of bad)
      await expect(importRows(database.db, 'x', source, ana)).rejects.toThrow(problem)
    await expect(importRows(database.db, 'a/b', numbers(1), ana)).rejects.toThrow('expected a name of 1 to 200 letters')
    const odd = query(async function* () {
      yield { f: () => 1 }
      yield 'text' as never
      yield { big: 'x'.repeat(2_000_000) }
      yield { bytes: Buffer.from('x') }
      yield { big: 5n }
      yield { ok: true, at: new Date(5), 'price.$': 2 ** 40 }
    })
    const head = await importRows(database.db, 'odd', odd, ana)
    expect(head).toMatchObject({ rows: 1, bad: 5 })
    const [[, row] = []] = await rowsOfBatch(database.db, 'odd', 0)
    expect(row).toStrictEqual({ ok: true, at: new Date(5), 'price.$': 2 ** 40 })
    expect(head.badRows.map(({ number, problem }) => [number, problem.replace(/.*: /s, '').slice(0, 50)])).toEqual([
      [1, expect.stringContaining('expected a value that can be stored, got function')],
      [2, 'expected an object, got string'],
      [3, expect.stringContaining('expected a row of at most 1048576 bytes')],
      [4, 'expected a plain object, an array, a Date or an Obj'.slice(0, 50)],
      [5, 'expected a number, got the bigint 5; store it as text'.slice(0, 50)],
    ])
  })
})

describe('eachRow', () => {
  const ends = useEnds()
  const database = useDatabase()
  const lifecycle = lifecycleOf<{
    _id: string
    rows?: { handled: number; quarantined: number; tries: number }
  }>().define({
    name: 'import',
    collection: 'Import',
    phases: { Running: { next: ['Done'] }, Done: { rest: true } },
    maxAttempts: 20,
  })
  const started = async (each: EachRowOptions['each'], options: Partial<EachRowOptions> = {}) => {
    const bound = lifecycle.handle({
      Running: async (doc, step) => {
        const rows = { db: database.db, name: 'n' }
        return (await eachRow(doc, step, { rows, each, ...options })) ?? step.moveTo('Done')
      },
    })
    const replica = new Replica({ db: database.db, lifecycles: [bound], logger: silentLogger })
    ends.push(() => replica.stop())
    await replica.runOnce()
    await bound.insert({ _id: 'i1' })
    return { replica, run: () => replica.runOnce(), imports: bound }
  }
  const stored = () => database.db.collection<{ _id: string; phase?: string }>('Import').findOne({ _id: 'i1' })
  /** As if the time of each back-off were over. */
  const untilDone = async (run: () => Promise<unknown>, wake: () => Promise<unknown>) => {
    for (let i = 0; i < 20; i += 1) {
      await run()
      if ((await stored())?.phase === 'Done') return
      await wake()
    }
    throw new Error('expected the import to end')
  }

  test('handles each row once, one batch in a step', async () => {
    await importRows(database.db, 'n', numbers(1_010), ana)
    const seen: number[] = []
    const { run } = await started((row: Row, { number, attempt }) => {
      expect([row['n'], attempt]).toEqual([number, 1])
      seen.push(number)
    })
    await run()
    expect(seen).toEqual(Array.from({ length: 1_010 }, (_, i) => i + 1))
    expect(await stored()).toMatchObject({
      phase: 'Done',
      rows: { name: 'n', handled: 1_010, quarantined: 0, isDone: true },
    })
  })

  test('quarantines a bad row at once, and one that fails three times; the others go on', async () => {
    await importRows(database.db, 'n', numbers(20), ana)
    const calls = new Map<number, number>()
    const { run, imports } = await started((_row, { number }) => {
      calls.set(number, (calls.get(number) ?? 0) + 1)
      if (number === 5) throw new BadRow('n: expected an even one')
      if (number === 9) throw new Error('no')
    })
    await untilDone(run, () => imports.wake('i1').catch(() => undefined))
    expect(await stored()).toMatchObject({ rows: { handled: 18, quarantined: 2 } })
    expect([calls.get(5), calls.get(9), calls.get(8), calls.get(10)]).toEqual([1, 3, 1, 1])
    const bad = await quarantinedRows(database.db, 'n')
    expect(bad.sort((a, b) => a.number - b.number)).toEqual([
      { rows: 'n', document: 'i1', number: 5, cells: { n: 5 }, problem: 'BadRow: n: expected an even one' },
      { rows: 'n', document: 'i1', number: 9, cells: { n: 9 }, problem: 'Error: no' },
    ])
  })

  test('an outage outside is no fault of the row: no try is used', async () => {
    await importRows(database.db, 'n', numbers(3), ana)
    let failures = 0
    const { run, imports } = await started((_row, { number }) => {
      if (number !== 2 || failures === 6) return
      failures += 1
      throw new Unavailable('the printer is away')
    })
    await untilDone(run, () => imports.wake('i1').catch(() => undefined))
    expect(await stored()).toMatchObject({ rows: { handled: 3, quarantined: 0 } })
    expect(failures).toBe(6)
  })

  test('rows that are not there fail the step with a reason; bad options are refused', async () => {
    const { run } = await started(() => undefined)
    await run()
    expect(JSON.stringify(await stored())).toContain('expected rows under the name n, got none')
    const step = {} as never
    await expect(
      eachRow({ _id: 1 }, step, { rows: { db: database.db, name: 'n' }, each: () => undefined, tries: 9 }),
    ).rejects.toThrow('eachRow: tries: expected a whole number from 1 to 5, got 9')
  })
})

describe('rowLoop', () => {
  const ends = useEnds()
  const database = useDatabase()
  const opened = () => {
    const store = new SharedStore({ client: database.db })
    ends.push(() => store.close())
    return { loop: rowLoop({ db: database.db, store, session: 's1' }), store }
  }

  test('goes on in another process at the row that was not done, and ends by itself', async () => {
    await importRows(database.db, 'n', numbers(1_005), ana)
    const { loop } = opened()
    await loop.begin('n', 990)
    const seen: number[] = []
    for await (const { number } of loop.rows()) {
      seen.push(number)
      if (number === 1_002) break // the process is gone in the middle of this row
    }
    for await (const { number } of opened().loop.rows()) seen.push(number)
    expect(seen).toEqual([...Array.from({ length: 13 }, (_, i) => i + 990), 1_002, 1_003, 1_004, 1_005])
    await expect(loop.rows().next()).rejects.toThrow('expected the loop of the session s1 to have a place, got none')
  })

  test('a place that has expired is an error, and never row 1; two processes do not share one', async () => {
    await importRows(database.db, 'n', numbers(5), ana)
    const { loop, store } = opened()
    await expect(loop.rows().next()).rejects.toMatchObject({ name: 'LoopExpired' })
    await loop.begin('n')
    const [one, other] = [loop.rows(), opened().loop.rows()]
    await one.next()
    await other.next()
    await one.next()
    await expect(other.next()).rejects.toMatchObject({ name: 'LoopTaken' })
    await store.of('loop').delete('s1')
    await expect(one.next()).rejects.toMatchObject({ name: 'LoopExpired' })
    await expect(loop.begin('n', 6)).rejects.toThrow('expected the rows n to have a row 6 or a later one')
  })
})
