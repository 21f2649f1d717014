import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { FaultKind } from '../../chaos/faults/plan.ts'
import { standStills } from '../../chaos/faults/stand-stills.ts'
import type { LedgerEntry } from '../../chaos/proof/ledger.ts'
import { mongodPath, NoMongod } from '../../chaos/replica-set/mongod.ts'

describe('which mongod a replica set has', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'mongods-'))
  })
  afterEach(() => rm(folder, { recursive: true }))

  const program = async (name: string) => {
    const path = join(folder, name)
    await writeFile(path, '')
    await chmod(path, 0o755)
    return path
  }

  test('the one that is named, whatever is in PATH', async () => {
    const named = await program('named')
    await program('mongod')
    expect(await mongodPath({ MONGOMS_SYSTEM_BINARY: named, PATH: folder })).toBe(named)
  })

  test('else the first in PATH', async () => {
    const path = await program('mongod')
    expect(await mongodPath({ PATH: ['/nowhere', folder].join(delimiter) })).toBe(path)
  })

  test('none but the one that is named, and the error says what to do', async () => {
    await program('mongod')
    const path = mongodPath({ MONGOMS_SYSTEM_BINARY: '/nowhere/mongod', PATH: folder })
    await expect(path).rejects.toThrow(NoMongod)
    await expect(path).rejects.toThrow(/nowhere\/mongod isn't a program.*: install MongoDB's server, or set MONGOMS/)
  })
})

describe('how long nothing went on', () => {
  const struck = (kind: FaultKind, fromMs: number, toMs: number) => ({ kind, fromMs, toMs })
  const begins = (...atMs: number[]) =>
    atMs.map((at) => ({ kind: 'begin', at: new Date(at) }) as unknown as LedgerEntry)

  test('is the longest time without a step, from the fault until 15 s after it', () => {
    const entries = begins(900, 1_100, 4_000, 18_900, 19_100, 90_000)
    expect(standStills([struck('primaryKilled', 1_000, 4_000)], entries)).toEqual({
      primaryKilled: { count: 1, p50: 14_900, p95: 14_900, most: 14_900 },
    })
  })

  test('counts what has not gone on by then, but not that all work was done', () => {
    const paused = [struck('primaryPaused', 1_000, 4_000)]
    expect(standStills(paused, begins(1_100, 30_000))).toMatchObject({ primaryPaused: { most: 17_900 } })
    expect(standStills(paused, begins(1_100, 5_000))).toMatchObject({ primaryPaused: { most: 3_900 } })
  })

  test('ends with the next fault of the database, and with no other', () => {
    const next = [struck('replicaKilled', 2_500, 2_600), struck('secondarySlow', 9_000, 9_500)]
    expect(standStills([struck('primaryKilled', 1_000, 2_000), ...next], begins(7_000, 20_000))).toMatchObject({
      primaryKilled: { most: 6_000 },
      secondarySlow: { most: 11_000 },
    })
  })

  test('is all of that time if no step began', () => {
    for (const entries of [begins(500, 17_500), begins(500), []])
      expect(standStills([struck('primaryPaused', 1_000, 2_000)], entries)).toEqual({
        primaryPaused: { count: 1, p50: 16_000, p95: 16_000, most: 16_000 },
      })
  })

  test('is told for each kind of the database, in percentiles', () => {
    const steadyAfter = (atMs: number) => Array.from({ length: 40 }, (_, i) => atMs + i * 500)
    const entries = begins(...[1_000, 102_000, 203_000, 309_000].flatMap(steadyAfter))
    const four = [0, 100_000, 200_000, 300_000].map((at) => struck('primaryStepsDown', at, at + 10))
    expect(standStills([...four, struck('replicaKilled', 0, 1)], entries)).toEqual({
      primaryStepsDown: { count: 4, p50: 2_000, p95: 9_000, most: 9_000 },
    })
  })
})
