import { cp, mkdtemp, rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { LeaseLost, Unavailable } from '../../src/index.js'
import { KubernetesConflict, KubernetesError } from '../../src/kubernetes/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'

/** An app, and a package that it uses, may each have brought a Phaselock of their own. */
describe('two copies of the package in one process', () => {
  const database = useDatabase()
  const loaded: {
    core: typeof import('../../src/index.js')
    kubernetes: typeof import('../../src/kubernetes/index.js')
  }[] = []
  let folder: string

  beforeAll(async () => {
    // Within the repository: what it imports is found from here.
    folder = await mkdtemp(resolve('.two-copies-'))
    for (const name of ['one', 'two']) {
      await cp(resolve('dist'), join(folder, name, 'dist'), { recursive: true })
      await cp(resolve('package.json'), join(folder, name, 'package.json'))
      const from = (path: string) => import(pathToFileURL(join(folder, name, 'dist', path)).href)
      loaded.push({ core: await from('index.js'), kubernetes: await from('kubernetes/index.js') })
    }
  }, 60_000)
  afterAll(() => rm(folder, { recursive: true, force: true }))

  test('are two', () => {
    const [one, two] = loaded
    expect(one!.core.Unavailable).not.toBe(two!.core.Unavailable)
  })

  test("know each other's errors, and tell them apart", () => {
    const [one, two] = loaded.map(({ core, kubernetes }) => ({ ...core, ...kubernetes }))
    for (const other of [two!.Unavailable, Unavailable]) {
      const error = new other('down')
      expect(error instanceof one!.Unavailable).toBe(true)
      expect(error instanceof one!.LeaseLost).toBe(false)
      class Mine extends one!.Unavailable {}
      expect(error instanceof Mine).toBe(false)
      expect(new Mine('x') instanceof Mine).toBe(true)
      expect(new Mine('x') instanceof two!.Unavailable).toBe(true)
    }
    const request = { cluster: 'eu', verb: 'get', resource: 'pods' }
    const conflict = new two!.KubernetesConflict('x', request)
    for (const kind of [one!.KubernetesError, one!.KubernetesConflict, KubernetesError, KubernetesConflict])
      expect(conflict instanceof kind).toBe(true)
    expect(conflict instanceof one!.KubernetesForbidden).toBe(false)
    expect(new two!.KubernetesError('x', request) instanceof one!.KubernetesConflict).toBe(false)
    for (const odd of [undefined, null, 'down', Object.create(null), new Error('down')])
      expect((odd as object) instanceof one!.Unavailable).toBe(false)
    expect(new LeaseLost('thing', 'a', 't') instanceof two!.LeaseLost).toBe(true)
  })

  test('a replica of one waits when a handler throws Unavailable of the other', async () => {
    const lifecycle = thingWith(async () => {
      throw new loaded[1]!.core.Unavailable('the storage is down', { retryAfter: '1h' })
    })
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replicaOf(database.db, lifecycle).runOnce()
    const found = await things(database.db).findOne({ _id: 'a' })
    expect(found!['progress']).toMatchObject({ waitingFor: 'the storage is down', claims: 0 })
    expect(found!['progress']).not.toHaveProperty('error')
  })
})
