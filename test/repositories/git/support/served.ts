import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach } from '@jest/globals'
import { GitCache, gitSource, type Source } from 'phaselock-repositories'
import { type GitHttp, gitHttp } from './git-http.js'
import { TestRepository } from './repository.js'

/** A repository behind a server of its own, and its source with an empty cache below `caches`. */
export interface ServedRepository {
  readonly repository: TestRepository
  readonly server: GitHttp
  readonly caches: string
  readonly cache: GitCache
  readonly source: Source
}

/** Gives each test of the file such a repository. @returns the folder of the only cached repository */
export function useServedRepository(given: (served: ServedRepository) => void): () => Promise<string> {
  let caches = ''
  let served: ServedRepository
  beforeAll(async () => {
    caches = await mkdtemp(join(tmpdir(), 'phaselock-caches-'))
  })
  afterAll(() => rm(caches, { recursive: true, force: true }))
  beforeEach(async () => {
    const repository = await TestRepository.create()
    const server = await gitHttp(dirname(repository.folder))
    const cache = new GitCache({ folder: caches })
    served = { repository, server, caches, cache, source: gitSource({ url: `${server.url}/project.git`, cache }) }
    given(served)
  })
  afterEach(async () => {
    await served.cache.clear()
    await served.server[Symbol.asyncDispose]()
    await served.repository[Symbol.asyncDispose]()
  })
  return async () => {
    const found = (await readdir(caches, { recursive: true })).filter(
      (name) => name.endsWith('HEAD') && !name.includes('refs'),
    )
    return dirname(join(caches, found[0]!))
  }
}
