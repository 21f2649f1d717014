import { describe, expect, test } from '@jest/globals'
import type { Stored } from '../../../packages/state/src/store/backend.js'
import type { Bell, Hears } from '../../../packages/state/src/store/bell.js'
import { Hearing } from '../../../packages/state/src/store/hearing.js'
import { Layer } from '../../../packages/state/src/store/layer.js'
import { silentLogger } from '../../../src/phases/reporting/logger.js'
import { eventually } from '../../support/database.js'
import { gate } from '../../support/thing.js'
import { mongoUnderTest } from './stores.js'

const stored = (text: string, leftMs?: number): Stored => ({ encoded: text, version: text, leftMs })

/** A layer of 'p' over a bell that the test rings. */
function layerUnderTest(most = 10) {
  let hears: Hears | undefined
  let now = 1_000
  const bell: Bell = {
    ring: () => undefined,
    flush: async () => undefined,
    listen: (given) => {
      hears = given
      return { stop: async () => undefined }
    },
  }
  const clock = { now: () => new Date(), monotonicMs: () => now }
  const hearing = new Hearing(bell, silentLogger)
  const layer = new Layer('p', { maxAgeMs: 1_000, most }, hearing, clock)
  let reads = 0
  return {
    layer,
    hears: hears!,
    passes: (ms: number) => {
      now += ms
    },
    /** As `get` does it. */
    get: async (key: string, value: Stored | null | (() => Promise<Stored | undefined>) = stored('v')) => {
      const kept = layer.get(key)
      if (kept !== null) return kept
      reads += 1
      return await layer.read(key, typeof value === 'function' ? value : async () => value ?? undefined)
    },
    reads: () => reads,
  }
}

describe('a layer in the process', () => {
  test('serves a value, or that there is none, for maxAge from when its read was sent, and no longer', async () => {
    const { get, reads, passes, hears } = layerUnderTest()
    hears.hearing(true)
    const slow = async () => {
      passes(400)
      return stored('v')
    }
    await get('p:e:a', slow)
    await get('p:e:none', null)
    passes(599)
    await get('p:e:a')
    expect(reads()).toBe(2)
    passes(1)
    await get('p:e:a')
    expect(reads()).toBe(3)
    expect(await get('p:e:none', stored('new'))).toBeUndefined()
    passes(400)
    expect(await get('p:e:none', stored('new'))).toEqual(stored('new'))
  })

  test('serves nothing beyond its own ttl', async () => {
    const { get, reads, passes, hears } = layerUnderTest()
    hears.hearing(true)
    await get('p:e:a', stored('v', 300))
    passes(299)
    await get('p:e:a')
    expect(reads()).toBe(1)
    passes(1)
    await get('p:e:a')
    expect(reads()).toBe(2)
  })

  test('serves nothing while the doorbell is deaf, and nothing from before when it hears again', async () => {
    const { get, reads, hears } = layerUnderTest()
    await get('p:e:a')
    await get('p:e:a')
    expect(reads()).toBe(2)
    hears.hearing(true)
    await get('p:e:a')
    await get('p:e:a')
    expect(reads()).toBe(3)
    hears.hearing(false)
    await get('p:e:a')
    hears.hearing(true)
    await get('p:e:a')
    expect(reads()).toBe(5)
  })

  test('is emptied by a ring: of the keys that it names, else of its prefix, else of all', async () => {
    const { get, reads, hears } = layerUnderTest()
    hears.hearing(true)
    const all = async () => {
      const before = reads()
      for (const key of ['p:e:a', 'p:e:b']) await get(key)
      return reads() - before
    }
    expect(await all()).toBe(2)
    expect(await all()).toBe(0)
    hears.changed({ prefix: 'p', keys: ['p:e:a', 'p:e:c'] })
    expect(await all()).toBe(1)
    hears.changed({ prefix: 'other', keys: undefined })
    expect(await all()).toBe(0)
    hears.changed({ prefix: 'p', keys: undefined })
    expect(await all()).toBe(2)
    hears.changed(undefined)
    expect(await all()).toBe(2)
  })

  test.each<[string, (under: ReturnType<typeof layerUnderTest>) => void]>([
    ['a ring names the key', ({ hears }) => hears.changed({ prefix: 'p', keys: ['p:e:a'] })],
    ['this process writes it', ({ layer }) => layer.forget('p:e:a')],
    ['the doorbell was deaf', ({ hears }) => [false, true].map((is) => hears.hearing(is))],
  ])('does not keep what was read before %s and comes in after it', async (_what, happens) => {
    const under = layerUnderTest()
    under.hears.hearing(true)
    const answer = gate()
    const reading = under.get('p:e:a', async () => {
      await answer.wait
      return stored('old')
    })
    happens(under)
    answer.open()
    expect(await reading).toEqual(stored('old'))
    expect(await under.get('p:e:a', stored('new'))).toEqual(stored('new'))
  })

  test('has a bound: the value that was not read for longest goes first', async () => {
    const { get, reads, hears } = layerUnderTest(2)
    hears.hearing(true)
    for (const key of ['p:e:a', 'p:e:b', 'p:e:a', 'p:e:c', 'p:e:a']) await get(key)
    expect(reads()).toBe(3)
    await get('p:e:b')
    expect(reads()).toBe(4)
  })
})

describe('layers of two processes', () => {
  test('serve what they have read, until the other writes it', async () => {
    const under = await mongoUnderTest()
    try {
      const stores = [under.open(), under.open()]
      const [one, two] = stores.map((store) => store.of<number>('layered', { layer: true }))
      const isHearing = (store: object) =>
        (store as { parts: { hearing: { isHearing: boolean } } }).parts.hearing.isHearing
      await eventually(() => stores.every(isHearing))
      const silent = under.open({ doorbell: false }).of<number>('layered')
      let n = 10
      // On a slow machine the second may be over in between.
      await eventually(async () => {
        n += 1
        await silent.set('a', n)
        const read = await two!.get('a')
        await silent.set('a', 0)
        return read === n && (await two!.get('a')) === n
      })
      await one!.set('a', 3)
      await eventually(async () => (await two!.get('a')) === 3)
      await two!.delete('a')
      expect(await two!.get('a')).toBeUndefined()
      await eventually(async () => (await one!.get('a')) === undefined)
    } finally {
      await under.close()
    }
  })
})
