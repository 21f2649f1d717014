import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'

/** The benchmarks are plain JavaScript without types. */
const load = (file: string): Promise<any> => import(new URL(`../../bench/${file}`, import.meta.url).pathname)

describe('the ledgers of `claims`', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'ledgers-'))
  })
  afterEach(() => rm(folder, { recursive: true }))

  const ledger = async (name: string, ...lines: string[]) => {
    const file = join(folder, name)
    await writeFile(file, lines.map((line) => `${line}\n`).join(''))
    return file
  }

  test('lost, repeated, and two at once are told apart', async () => {
    const { account } = await load('claims/ledger.mjs')
    const one = await ledger('one', 'b 0 10', 'b 1 11', 'e 0 20', 'e 1 21', 'b 3 22')
    const other = await ledger('other', 'b 1 15', 'e 1 16', 'b 0 30', 'e 0 31')
    // 0: again, after the first had ended; 1: by both at once; 2: by nobody; 3: begun by one that was killed
    expect(account([one, other], 4)).toEqual({ firstMs: 10, lost: 2, repeated: 2, overlapping: 1 })
  })

  test('what a process writes is what is counted', async () => {
    const { openLedger, account } = await load('claims/ledger.mjs')
    const file = join(folder, 'own')
    const own = openLedger(file)
    own.begun(0)
    own.ended(0)
    expect(account([file], 1)).toMatchObject({ lost: 0, repeated: 0, overlapping: 0 })
  })
})

test('the ledger of `peers` counts each step of each job once', async () => {
  const { newLedger } = await load('peers/ledger.mjs')
  const ledger = newLedger('steps', 2)
  let job = { id: 0, step: 1 }
  while (job) job = ledger.visit(job, 0)
  ledger.visit({ id: 0, step: 6 }, 0)
  expect(ledger.counts()).toEqual({ ran: 6, missing: 6, repeated: 1 })
  for (let next = { id: 1 }; next; next = ledger.visit(next, 0));
  await ledger.completed
  expect(ledger.counts()).toEqual({ ran: 12, missing: 0, repeated: 1 })
})
