import { expect, test } from '@jest/globals'
import { InvalidOptions } from 'phaselock'
import {
  embeddings,
  GitCache,
  gitSource,
  memory,
  mongoVectors,
  openAiEmbeddings,
  pgvector,
  qdrant,
  repositories,
} from 'phaselock-repositories'
import { useDatabase } from '../support/database.js'
import { hashedEmbedder } from './hashed-embedder.js'

const database = useDatabase()
const options = (more: object = {}) =>
  ({ db: database.db, store: memory(), embeddings: embeddings(hashedEmbedder()), ...more }) as never

const url = 'https://git.example/a/b'
const called: readonly (readonly [string, () => unknown])[] = [
  ['repositories', () => repositories(options({ wrong: 1 }))],
  ['repositories: chunks', () => repositories(options({ chunks: { characters: 100, overlap: 10, wrong: 1 } }))],
  ['embeddings', () => embeddings(hashedEmbedder(), { wrong: 1 } as never)],
  ['openAiEmbeddings', () => openAiEmbeddings({ url, model: 'text-embedding-3-small', wrong: 1 } as never)],
  ['mongoVectors', () => mongoVectors(database.db, { wrong: 1 } as never)],
  ['memory', () => memory({ wrong: 1 } as never)],
  ['qdrant', () => qdrant({} as never, { wrong: 1 } as never)],
  ['pgvector', () => pgvector({} as never, { schema: 'public', wrong: 1 } as never)],
  ['new GitCache', () => new GitCache({ wrong: 1 } as never)],
  ['gitSource', () => gitSource({ url, cache: new GitCache(), wrong: 1 } as never)],
]

test.each(called)('%s refuses an unknown option, and names the known ones', (name, call) => {
  expect(call).toThrow(InvalidOptions)
  expect(call).toThrow(new RegExp(`^${name}: unknown option 'wrong'; known: \\w+`))
})

test("repositories() says in one error what it needs, and doesn't show what it got", () => {
  const wrong = { db: 'mongodb://user:secret@host', store: undefined, cache: {}, credentials: 'secret', lockTimeOut: 1 }
  expect(() => repositories(options(wrong))).toThrow(
    "repositories: unknown option 'lockTimeOut'; known: db, store, embeddings, chunks, credentials, cache, sourceOf, schedules, wrap, logger, " +
      'lockTimeout, limits, keepFor; db: expected a Db of the MongoDB driver, got text; ' +
      'store: expected a vector store, such as qdrant(client), got undefined; credentials: expected a function, got text; cache: expected a GitCache, got an object',
  )
  expect(() => (repositories as (given?: unknown) => unknown)()).toThrow(
    'repositories: expected an object with options, got undefined',
  )
})

test.each(['sync', 'list', 'syncs', 'files', 'search'] as const)('%s refuses an unknown option', async (name) => {
  const repos = repositories(options())
  const given = name === 'list' ? [{ repo: 'a' }] : ['a', { repo: 'a' }]
  const call = (repos[name] as (...args: readonly unknown[]) => Promise<unknown>).bind(repos)
  await expect(call(...given)).rejects.toThrow(new RegExp(`^${name}: unknown option 'repo'; known: `))
})
