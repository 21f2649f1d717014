import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import type { SimpleLock } from '../../src/locks/lock-provider.js'
import { eventually } from '../support/database.js'
import { type Entry, overlaps } from './critical-sections.js'
import { HolderProcess } from './holder-process.js'
import { type Kind, type ProviderUnderTest, UNDER_TEST } from './providers.js'

interface Granted {
  fence: number
  lockedBy: string
  lockUntil: number
}

describe.each(['mongodb', 'postgres', 'mysql', 'redis', 'redis-quorum'] as Kind[])(
  'processes with locks in %s',
  (kind) => {
    let under: ProviderUnderTest
    let started: HolderProcess[] = []

    beforeAll(async () => {
      under = await UNDER_TEST[kind]()
    }, 240_000)
    afterAll(async () => await under?.close())
    afterEach(async () => {
      await Promise.all(started.map((one) => one.kill()))
      started = []
    })

    const process = async (name: string) => {
      const holder = await HolderProcess.start(under.options, name)
      started.push(holder)
      return holder
    }
    const takenHere = (name: string): Promise<SimpleLock> =>
      eventually(
        async () =>
          (await under.provider().lock({ name, lockAtMostFor: '1h' })) ?? Promise.reject(new Error('still held')),
      )

    test('the lock of a process that was killed ends by itself', async () => {
      const config = { name: 'killed', lockAtMostFor: '500ms' }
      const victim = await process('victim')
      const held = await eventually(async () => (await victim.answer<Granted | null>('lock', { config })) ?? false)
      await victim.kill()
      const next = await takenHere('killed')
      expect(next.fence).toBeGreaterThan((held as Granted).fence)
      expect(next.lockedAt.getTime()).toBeGreaterThanOrEqual((held as Granted).lockUntil)
    })

    test('a process that was paused past its lease touches nothing, and its running task is told', async () => {
      const paused = await process('paused')
      const config = { name: 'paused', lockAtMostFor: '500ms' }
      await eventually(async () => (await paused.answer<Granted | null>('lock', { config })) ?? false)
      paused.ask('run', { config: { name: 'running', lockAtMostFor: '2500ms' } })
      await paused.said((line) => line['running'] !== undefined)
      paused.signal('SIGSTOP')
      const [taken, running] = await Promise.all([takenHere('paused'), takenHere('running')])
      paused.signal('SIGCONT')
      await paused.answered('run')
      expect(await paused.answer('extend', { lockAtMostFor: '1h' })).toBe(false)
      expect(await paused.answer('unlock')).toBe(false)
      for (const one of [taken, running]) {
        expect(await under.provider().find(one.name)).toMatchObject({ lockedBy: one.lockedBy, held: true })
        expect(await one.unlock()).toBe(true)
      }
    })

    test('two processes never work under one lock at the same time, and fences grow', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'phaselock-locks-'))
      try {
        const [a, b] = await Promise.all([process('a'), process('b')])
        const fight = { log: join(folder, 'log'), names: ['one', 'two'], times: 30, config: { lockAtMostFor: '1m' } }
        a.ask('fight', fight)
        b.ask('fight', fight)
        await Promise.all([a.answered('fight'), b.answered('fight')])
        const lines = (await readFile(fight.log, 'utf8')).trim().split('\n')
        const entries = lines.map((line) => JSON.parse(line) as Entry)
        expect(entries).toHaveLength(120)
        expect(overlaps(entries)).toEqual([])
      } finally {
        await rm(folder, { recursive: true })
      }
    })
  },
)
