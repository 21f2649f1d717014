import { expect, test } from '@jest/globals'
import { Unavailable } from 'phaselock'
import { memory, type VectorStore } from 'phaselock-repositories'
import { randomNumbers } from '../../support/random.js'
import { pointsOf, truthOf, useRepositories } from './support.js'

/** `PHASELOCK_TEST_SEEDS=1000` goes through more of them; `PHASELOCK_TEST_SEED=7` through one. */
const COUNT = Number(process.env['PHASELOCK_TEST_SEEDS'] ?? 12)
const ONE = process.env['PHASELOCK_TEST_SEED']
const seeds = ONE === undefined ? Array.from({ length: COUNT }, (_, i) => i + 1) : [Number(ONE)]

const { world, created, synced } = useRepositories()

type Files = Record<string, string>

/**
 * A store whose calls fail before or after they were done, and that repeats writes of former steps later: those of a replica that was paused past its
 * lease.
 */
function faulty(random: ReturnType<typeof randomNumbers>) {
  const store = memory()
  const late: (() => Promise<void>)[] = []
  const state = { isFaulty: false }
  const around = <A extends unknown[]>(work: (...args: A) => Promise<void>) => {
    return async (...args: A): Promise<void> => {
      if (!state.isFaulty) return work(...args)
      const chance = random()
      if (chance < 0.1) throw new Unavailable('the store is away')
      if (chance < 0.25) late.push(() => work(...args))
      if (late.length > 0 && random() < 0.3) await late.splice(Math.floor(random() * late.length), 1)[0]!()
      await work(...args)
      if (chance > 0.9) throw new Error('the answer was lost')
    }
  }
  const wrapped: VectorStore = {
    ...store,
    upsert: around(store.upsert.bind(store)),
    delete: around(store.delete.bind(store)),
    describe: store.describe.bind(store),
    create: store.create.bind(store),
    drop: store.drop.bind(store),
    query: store.query.bind(store),
    count: store.count.bind(store),
    scroll: store.scroll.bind(store),
  }
  return { store: wrapped, state, replayLate: () => Promise.all(late.splice(0).map((write) => write())) }
}

test.each(seeds)(
  'random commits, force-pushes, faults and late writers, seed %d: the store is what the tree says',
  async (seed) => {
    const random = randomNumbers(seed)
    const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)]!
    const { store, state, replayLate } = faulty(random)
    const one = world({ store })
    const line = () => `${pick(['alpha', 'beta', 'gamma', 'delta'])} ${Math.floor(random() * 50)} of some text\n`
    const content = () => Array.from({ length: Math.floor(random() * 12) }, line).join('')
    const commits: Files[] = []
    let files: Files = Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`d${i % 3}/f${i}`, content()]))

    const edit = (): Files => {
      const next = { ...files }
      for (let i = 0; i < 1 + random() * 4; i += 1) {
        const path = pick(Object.keys(next)) ?? 'd0/f0'
        const change = random()
        if (change < 0.3) next[path] = content()
        else if (change < 0.5) next[path] = line() + (next[path] ?? '')
        else if (change < 0.65) delete next[path]
        else if (change < 0.85) {
          next[`d${Math.floor(random() * 3)}/r${Math.floor(random() * 9)}`] = next[path] ?? ''
          delete next[path]
        } else next[`d0/n${Math.floor(random() * 20)}`] = content()
      }
      return next
    }

    one.origin.commit(files)
    await created(one)
    for (let round = 0; round < 4; round += 1) {
      commits.push(files)
      files = random() < 0.25 ? pick(commits) : edit()
      one.origin.commit(files)
      state.isFaulty = true
      const cancels = random() < 0.2
      one.origin.before = async (call) => {
        if (random() < 0.1) throw new Error('killed')
        if (cancels && call === 'blobs') await one.repos.cancel('r')
      }
      await synced(one)
      if (random() < 0.3) await store.drop('code')
      // What a paused replica still had to write comes whenever it likes; the sync after that finds it.
      if (random() < 0.5) await replayLate().catch(() => {})
    }
    state.isFaulty = false
    one.origin.before = () => {}
    await replayLate().catch(() => {})
    expect(await synced(one)).toMatchObject({ status: 'completed' })
    expect(await pointsOf(store)).toEqual(truthOf(files))
    expect((await one.repos.files('r')).map(({ path }) => path)).toEqual(Object.keys(files).sort())
    const embedded = one.model.counts.embedded
    expect(await synced(one)).toMatchObject({ status: 'completed', counters: { listed: 0, mended: 0 } })
    expect(one.model.counts.embedded).toBe(embedded)
  },
)
