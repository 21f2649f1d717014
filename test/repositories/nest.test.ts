import { describe, expect, test } from '@jest/globals'
import { Injectable, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { memory, Repositories, type RepositoriesOptions } from 'phaselock-repositories'
import { RepositoriesHttpModule, RepositoriesModule } from '../../packages/repositories/src/nest/index.js'
import { PhaselockModule } from '../../src/nest/index.js'
import { SchedulesModule } from '../../src/nest/schedules/index.js'
import { Schedules } from '../../src/schedules/index.js'
import { keepingLogger } from '../nest/sample.js'
import { eventually, useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { countingEmbeddings, MemoryRepository } from './sync/support.js'

/** A busy machine. */
const PATIENTLY = { timeoutMs: 60_000 }

@Injectable()
class Answers {
  constructor(readonly repositories: Repositories) {}
}

describe('repositories in a Nest app', () => {
  const ends = useEnds()
  const database = useDatabase()

  /** An app whose replica works by itself, as it would on a pod. */
  async function boot(others: readonly object[] = [], more: Partial<RepositoriesOptions> = {}) {
    const origin = new MemoryRepository()
    const { embeddings } = countingEmbeddings()
    const logger = keepingLogger()
    const useFactory = async () => ({
      ...{ db: database.db, store: memory(), embeddings, sourceOf: () => origin.source() },
      ...{ chunks: { characters: 100, overlap: 20 }, logger, ...more },
    })
    const ofReplica = ({ lifecycles }: Repositories) => ({ db: database.db, lifecycles, logger, grace: '1s' as const })
    @Module({
      imports: [
        ScheduleModule.forRoot(),
        RepositoriesModule.forRootAsync({ useFactory }),
        ...(others as never[]),
        PhaselockModule.forRootAsync({ inject: [Repositories], useFactory: ofReplica }),
      ],
      providers: [Answers],
    })
    class App {}
    const app = await NestFactory.create(App, { logger: false, abortOnError: false })
    ends.push(() => app.close())
    await app.listen(0, '127.0.0.1')
    const { repositories } = app.get(Answers)
    const inSync = (id: string, commit: string) =>
      eventually(async () => (await repositories.show(id)).repository.synced?.commit === commit, PATIENTLY)
    return { app, origin, repositories, inSync, embeddings }
  }

  test('are injected and synced by its replica, with their schedules among those of the app', async () => {
    const { app, origin, repositories, inSync } = await boot([SchedulesModule.forRoot()])
    const commit = origin.commit({ a: 'alpha\n' })
    await repositories.create('r', {
      url: 'https://git.example/a',
      collection: 'code',
      schedule: { dailyAt: '03:00' },
    })
    await inSync('r', commit)
    expect(repositories.schedules).toBe(app.get(Schedules))
    expect(await app.get(Schedules).get('repo_sync_r')).toMatchObject({ task: 'repository-sync', cron: '0 3 * * *' })
  })

  test('are served to senders who may see, sync and search them, and to no others', async () => {
    const asked: unknown[] = []
    const by = ({ headers }: { headers: Readonly<Record<string, unknown>> }, use: object) => {
      asked.push(use)
      return headers['authorization'] === 'Bearer s' ? 'billing' : undefined
    }
    const { app, origin, repositories, inSync, embeddings } = await boot([RepositoriesHttpModule.forRoot({ by })])
    const commit = origin.commit({ a: 'alpha\n', 'src/b': 'beta\n' })
    await repositories.create('r', { url: 'https://git.example/a', collection: 'code' })
    await inSync('r', commit)
    type Asked = readonly [number, any]
    const ask = async (path: string, body?: object, token = 's', type = 'application/json'): Promise<Asked> => {
      const headers = { 'content-type': type, authorization: `Bearer ${token}` }
      const init = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
      const answer = await fetch(`${await app.getUrl()}/repositories${path}`, { ...init, headers })
      return [answer.status, await answer.json()]
    }
    await eventually(async () => (await repositories.show('r')).sync?.status === 'completed', PATIENTLY)
    const [, listed] = await ask('')
    expect(listed).toEqual({
      repositories: [
        expect.objectContaining({
          id: 'r',
          text: expect.stringContaining(`in sync with ${commit.slice(0, 8)}`),
          synced: expect.objectContaining({ commit, files: 2 }),
          sync: expect.objectContaining({ status: 'completed', counters: expect.objectContaining({ embedded: 2 }) }),
        }),
      ],
    })
    expect(JSON.stringify(listed)).not.toMatch(/lockedBy|progress/)
    expect(await ask('/r')).toMatchObject([200, { id: 'r', syncs: [{ status: 'completed' }] }])

    const next = origin.commit({ a: 'new alpha\n', 'src/b': 'beta\n' })
    const [status, { run }] = await ask('/r/sync', {})
    expect([status, run]).toEqual([202, expect.stringMatching(/^repo_sync_r@/)])
    await inSync('r', next)
    expect(await repositories.schedules.runs('repo_sync_r')).toContainEqual(
      expect.objectContaining({ _id: run, requestedBy: 'billing' }),
    )

    expect(await ask('/search', { question: 'beta\n', repository: 'r', path: 'src', limit: 1 })).toMatchObject([
      200,
      { found: [{ repository: 'r', path: 'src/b', fromLine: 1, toLine: 1, commit: next }] },
    ])
    expect(asked.slice(-1)).toEqual([{ action: 'search', repository: 'r' }])
    expect(await ask('', undefined, 'wrong')).toMatchObject([401, { error: 'unknownSender' }])
    expect(await ask('/r', undefined, 'wrong')).toMatchObject([401, {}])
    expect(await ask('/r/sync', {}, 'wrong')).toMatchObject([401, {}])
    expect(await ask('/search', { question: 'beta' }, 'wrong')).toMatchObject([401, {}])
    expect(await ask('/r/sync', {}, 's', 'text/plain')).toMatchObject([415, {}])
    expect(await ask('/search', { question: 'x' }, 's', 'text/plain')).toMatchObject([415, {}])
    expect(await ask('/none')).toMatchObject([404, { error: 'noRepository' }])
    expect(await ask('/none/sync', {})).toMatchObject([404, {}])
    expect(await ask('/search', { question: 'x', repository: 'none' })).toMatchObject([404, {}])
    for (const body of [{}, { question: '' }, { question: 'x', limit: 1.5 }, { question: 'x', repo: 'r' }])
      expect(await ask('/search', body)).toMatchObject([400, { error: 'invalidRequest' }])
    Object.assign(embeddings, { model: 'other' })
    expect(await ask('/search', { question: 'x' })).toMatchObject([409, { error: 'otherModel' }])
  })

  test('options that are unknown, and a module without a sender, are refused', async () => {
    await expect(boot([], { stor: 1 } as never)).rejects.toThrow("unknown option 'stor'")
    expect(() => RepositoriesHttpModule.forRoot({} as never)).toThrow('by: expected a function that returns the sender')
  })
})
