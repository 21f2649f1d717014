import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from '@jest/globals'
import { Unavailable } from 'phaselock'
import { GitCache, gitSource, memory, type Source, type VectorStore } from 'phaselock-repositories'
import { randomNumbers } from '../../support/random.js'
import { TestRepository } from '../git/support/repository.js'
import { pointsOf, truthOf, useRepositories } from './support.js'

/**
 * `PHASELOCK_TEST_SEEDS=1000` goes through more of them, and through a quarter as many with repositories that git reads, whose `ls-tree` is the
 * truth; `PHASELOCK_TEST_SEED=7` through one of each.
 */
const COUNT = Number(process.env['PHASELOCK_TEST_SEEDS'] ?? 8)
const ONE = process.env['PHASELOCK_TEST_SEED']
const seedsUpTo = (count: number) =>
  ONE === undefined ? Array.from({ length: Math.ceil(count) }, (_, i) => i + 1) : [Number(ONE)]
const CASES = [
  ...seedsUpTo(COUNT).map((seed) => ['memory', seed] as const),
  ...seedsUpTo(COUNT / 4).map((seed) => ['git', seed] as const),
]

const ends: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})
const { database, world, created, synced } = useRepositories()

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

/** A repository in memory, or one that git reads. */
interface Origin {
  readonly sourceOf: (() => Source) | undefined
  commit(files: Files): Promise<unknown> | unknown
  truth(files: Files): Promise<string[]> | string[]
}

async function gitOrigin(before: (call: string) => Promise<void>): Promise<Origin> {
  const repository = await TestRepository.create()
  const folder = await mkdtemp(join(tmpdir(), 'phaselock-model-'))
  ends.push(
    () => rm(folder, { recursive: true, force: true }),
    () => repository[Symbol.asyncDispose](),
  )
  const source = gitSource({ url: repository.folder, cache: new GitCache({ folder }) })
  const after = async function* <T>(call: string, items: () => AsyncIterable<T>) {
    await before(call)
    yield* items()
  }
  return {
    sourceOf: () => ({
      url: source.url,
      head: (...args) => before('head').then(() => source.head(...args)),
      tree: (...args) => after('tree', () => source.tree(...args)),
      blobs: (...args) => after('blobs', () => source.blobs(...args)),
    }),
    commit: (files) => repository.commit(files, { onto: false }),
    async truth() {
      const lines = (await repository.output('ls-tree', '-r', '-z', 'main')).split('\0').filter(Boolean)
      const files = lines.map(async (line) => {
        const [head = '', path = ''] = line.split('\t')
        return [path, await repository.output('cat-file', 'blob', head.split(' ')[2]!)] as const
      })
      return truthOf(Object.fromEntries(await Promise.all(files)))
    },
  }
}

test.each(CASES)(
  'random commits, force-pushes, faults and late writers, %s, seed %d: the store is what the tree says',
  async (kind, seed) => {
    const random = randomNumbers(seed)
    const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)]!
    const { store, state, replayLate } = faulty(random)
    let before: (call: string) => Promise<void> = async () => {}
    const origin = kind === 'git' ? await gitOrigin((call) => before(call)) : undefined
    const one = world({ store, ...(origin ? { sourceOf: origin.sourceOf } : {}) })
    const { commit, truth } = origin ?? { commit: (to: Files) => one.origin.commit(to), truth: truthOf }
    one.origin.before = (call) => before(call)
    const line = () => `${pick(['alpha', 'beta', 'gamma', 'delta'])} ${Math.floor(random() * 50)} of some text\n`
    const content = () => Array.from({ length: Math.floor(random() * 12) }, line).join('')
    const expire = () =>
      database.db
        .collection('RepositorySync')
        .updateMany({ lockedBy: { $exists: true } }, { $set: { lockedAt: new Date(0) }, $unset: { lockedBy: '' } })
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

    await commit(files)
    await created(one)
    for (let round = 0; round < 4; round += 1) {
      commits.push(files)
      files = random() < 0.25 ? pick(commits) : edit()
      await commit(files)
      state.isFaulty = true
      const cancels = random() < 0.2
      before = async (call) => {
        const chance = random()
        if (chance < 0.1) throw new Error('a fault')
        // Its replica is paused past its lease: what it goes on to write comes late, and another one begins the step again.
        if (chance < 0.15) await expire()
        if (cancels && call === 'blobs') await one.repos.cancel('r')
      }
      await synced(one)
      if (random() < 0.3) await store.drop('code')
      // What a paused replica still had to write comes whenever it likes; the sync after that finds it.
      if (random() < 0.5) await replayLate().catch(() => {})
    }
    state.isFaulty = false
    before = async () => {}
    await replayLate().catch(() => {})
    expect(await synced(one)).toMatchObject({ status: 'completed' })
    expect(await pointsOf(store)).toEqual(await truth(files))
    expect((await one.repos.files('r')).map(({ path }) => path)).toEqual(Object.keys(files).sort())
    const embedded = one.model.counts.embedded
    expect(await synced(one)).toMatchObject({ status: 'completed', counters: { listed: 0, mended: 0 } })
    expect(one.model.counts.embedded).toBe(embedded)
  },
)
