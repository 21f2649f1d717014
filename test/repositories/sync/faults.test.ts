import { expect, test } from '@jest/globals'
import { pointsOf, useRepositories } from './support.js'

const { world, created, synced } = useRepositories()

const text = (name: string, lines = 10) =>
  Array.from({ length: lines }, (_, i) => `${name} line ${i} of some text\n`).join('')
const filesOf = (name: string, count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`f${i}`, `${name} ${i}\n`]))

test.each(['f3', '.gitattributes'])(
  'a content that the source has no longer (%s) fails the sync; no points go',
  async (path) => {
    const one = world()
    one.origin.commit(filesOf('old', 5))
    const first = await created(one)
    const before = await pointsOf(one.store)
    one.origin.commit({ ...filesOf('old', 5), [path]: 'a new content\n' })
    one.origin.gone = 'a new content\n'
    expect(await synced(one)).toMatchObject({ status: 'failed', error: { name: 'CommitGone' }, rounds: 3 })
    expect(await pointsOf(one.store)).toEqual(before)
    expect((await one.repos.show('r')).repository.synced!.commit).toBe(first.head!.commit)
    one.origin.gone = undefined
    expect(await synced(one)).toMatchObject({ status: 'completed', counters: { skipped: 0 } })
  },
)
