import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Db } from 'mongodb'
import { NotFound, UsageError } from 'phaselock/operations'
import { Schedules } from 'phaselock/schedules'
import type { PackageCall, PackageCommand } from 'phaselock/tasks'
import type { Repositories } from '../sync/index.js'
import { scheduleIdOf } from '../sync/repository-fields.js'
import { Shown, type ShownRepository, type ShownSync } from '../sync/show.js'

const A_REPOSITORY = { '<id>': "the repository's _id" }
const LISTED = 1_000
const SYNCS = 10

/** `phaselock repositories`. */
export const repositoriesCommands: readonly PackageCommand[] = [
  {
    name: '',
    about: 'list the repositories, and how far each is in sync',
    examples: ['repositories', 'repositories --json'],
    async run({ db }) {
      const found = await new Shown(db).some({}, LISTED)
      return {
        json: found,
        head: ['repository', 'branch', 'condition'],
        rows: found.map(({ repository, text }) => [
          repository._id,
          repository.synced?.branch ?? repository.branch ?? '(default)',
          text,
        ]),
        lines:
          found.length > 0
            ? []
            : ['there are no repositories; repositories().create(id, { url, collection }) registers one'],
      }
    },
  },
  {
    name: 'show',
    about: 'show a repository and its latest syncs, with their numbers and errors',
    arguments: A_REPOSITORY,
    examples: ['repositories show billing'],
    async run({ db, args: [id = ''] }) {
      const { repository, text } = await shown(db, id)
      const syncs = await new Shown(db).syncs(id, SYNCS)
      const { url, include = [], exclude = [], collection } = repository
      return {
        json: { repository, text, syncs },
        head: ['started', 'status', 'seconds', 'listed', 'changed', 'embedded', 'reused', 'rate', 'error'],
        rows: syncs.map(syncRow),
        lines: [
          `${id}: ${text}`,
          `${url} -> ${repository.synced?.collection ?? collection}`,
          ...(include.length > 0 ? [`include: ${include.join(' ')}`] : []),
          ...(exclude.length > 0 ? [`exclude: ${exclude.join(' ')}`] : []),
        ],
      }
    },
  },
  {
    name: 'sync',
    about: 'ask for a sync now; it is Skipped while one is open',
    arguments: A_REPOSITORY,
    examples: ['repositories sync billing --by anna'],
    changes: true,
    async run({ db, args: [id = ''], by }) {
      await shown(db, id)
      const run = await new Schedules({ db }).run(scheduleIdOf(id), { by })
      return { json: { run }, lines: [`asked for ${run}`], audit: { after: { run } } }
    },
  },
  {
    name: 'search',
    about: 'search what was synced, with the model and the store of your app',
    arguments: { '<question>': 'the text to look for' },
    options: {
      '--app <module>':
        'a module that exports `repositories`: the result of repositories(), or a function of { db } that returns it',
      '--repository <id>': 'in one repository (default: all)',
      '--path <path>': 'a file, or a folder with all that is below it',
      '--limit <n>': 'the number of results (10, at most 100)',
    },
    examples: ['repositories search "where are retries?" --app ./app.mjs --path src'],
    async run(call) {
      const { args, options } = call
      const app = await appOf(call)
      const limit = limitOf(options['limit'])
      const repository = options['repository'] as string | undefined
      if (repository !== undefined) await shown(call.db, repository)
      const found = await app.search(args[0] ?? '', { repository, path: options['path'] as string | undefined, limit })
      return {
        json: found,
        head: ['repository', 'lines', 'commit', 'score'],
        rows: found.map(({ repository: id, path, fromLine, toLine, commit, score }) => [
          id,
          `${path}:${fromLine}-${toLine}`,
          commit.slice(0, 8),
          score.toFixed(3),
        ]),
        lines: found.length > 0 ? [] : ['nothing found'],
      }
    },
  },
]

const syncRow = (sync: ShownSync): string[] => {
  const { status, startedAt, durationSeconds, counters, filesPerSecond, secondsLeft, error } = sync
  const { listed = 0, added = 0, changed = 0, renamed = 0, deleted = 0, embedded = 0, reused = 0 } = counters ?? {}
  const left = secondsLeft === undefined ? '' : `, ${Math.ceil(secondsLeft)} s left`
  return [
    startedAt?.toISOString() ?? '-',
    status,
    durationSeconds?.toFixed(1) ?? '-',
    String(listed),
    `+${added} ~${changed} >${renamed} -${deleted}`,
    String(embedded),
    String(reused),
    filesPerSecond === undefined ? '-' : `${filesPerSecond.toFixed(1)} files/s${left}`,
    error?.message ?? '-',
  ]
}

async function shown(db: Db, id: string): Promise<ShownRepository> {
  const found = await new Shown(db).one(id)
  if (!found) throw new NotFound(`no repository '${id}'; phaselock repositories lists those that there are`)
  return found
}

function limitOf(given: string | true | undefined): number {
  if (given === undefined) return 10
  const limit = Number(given)
  if (!Number.isSafeInteger(limit) || limit < 1 || limit > 100)
    throw new UsageError(`--limit: expected a whole number from 1 to 100, got ${given}`)
  return limit
}

/** The app's repositories: only the app knows its model and its store. */
async function appOf({ db, options }: PackageCall): Promise<Repositories> {
  const file = options['app']
  if (typeof file !== 'string')
    throw new UsageError(
      'search needs --app <module>, which exports `repositories`: only your app knows its model and its store',
    )
  const loaded = (await import(pathToFileURL(resolve(file)).href)) as { readonly repositories?: unknown }
  const made = typeof loaded.repositories === 'function' ? await loaded.repositories({ db }) : loaded.repositories
  if (typeof (made as Repositories | undefined)?.search !== 'function')
    throw new UsageError(
      `${file}: expected an export \`repositories\`, the result of repositories() or a function that returns it`,
    )
  return made as Repositories
}
