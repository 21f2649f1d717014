import type { Db } from 'mongodb'
import { OPEN_PHASES } from './definition.js'
import { COLLECTIONS, type Repository, type RepositorySync } from './documents.js'

/** A sync, with its progress while it goes on. */
export interface ShownSync extends RepositorySync {
  readonly status: 'running' | 'completed' | 'failed'
  /** Files per second of the batches that are done, while it indexes. */
  readonly filesPerSecond?: number
  /** The time in seconds until the files that are left are indexed, at this rate. */
  readonly secondsLeft?: number
}

/** A repository with its latest sync. */
export interface ShownRepository {
  readonly repository: Repository & { readonly createdAt?: Date }
  /** Absent: none has begun. */
  readonly sync?: ShownSync
  /** Its condition in a sentence: `syncing 412 of 2,000 files for 9 s by api-2`. */
  readonly text: string
}

type Stored<T> = T & {
  readonly lockedBy?: string
  readonly phase: string
  readonly createdAt?: Date
  readonly progress?: StoredProgress
}
type Timed<T> = Stored<T> & { readonly now: Date }
/** The server's time, which people's "2 h ago" counts from. */
const WITH_NOW = { $addFields: { now: '$$NOW' } }

interface StoredProgress {
  readonly waitingFor?: string
  readonly since?: Date
  readonly error?: { readonly message: string }
  readonly history?: readonly { readonly outcome?: string; readonly reason?: string; readonly by?: string }[]
}

/** Reads repositories and their syncs for people. */
export class Shown {
  constructor(private readonly db: Db) {}

  private get syncDocuments() {
    return this.db.collection<Stored<RepositorySync>>(COLLECTIONS.syncs)
  }

  /** The latest syncs of a repository, newest first. */
  async syncs(repository: string, limit: number): Promise<ShownSync[]> {
    const latest = [{ $match: { repository } }, { $sort: { createdAt: -1 } }, { $limit: limit }, WITH_NOW]
    const found = await this.syncDocuments.aggregate<Timed<RepositorySync>>(latest).toArray()
    return found.map(({ now, ...one }) => shownSync(one as Stored<RepositorySync>, now))
  }

  async one(id: string): Promise<ShownRepository | undefined> {
    return (await this.some({ _id: id }, 1))[0]
  }

  async some(filter: object, limit: number): Promise<ShownRepository[]> {
    const repositories = await this.db
      .collection<Repository>(COLLECTIONS.repositories)
      .aggregate<Timed<Repository>>([{ $match: filter }, { $sort: { _id: 1 } }, { $limit: limit }, WITH_NOW])
      .toArray()
    const latest = await this.syncDocuments
      .aggregate<{ sync: Stored<RepositorySync> }>([
        { $match: { repository: { $in: repositories.map(({ _id }) => _id) } } },
        { $sort: { repository: 1, createdAt: -1 } },
        { $group: { _id: '$repository', sync: { $first: '$$ROOT' } } },
      ])
      .toArray()
    const byRepository = new Map(latest.map(({ sync }) => [sync.repository, sync]))
    return repositories.map(({ now, ...rest }) => {
      const repository = rest as Stored<Repository>
      const stored = byRepository.get(repository._id)
      const sync = stored && shownSync(stored, now)
      return { repository, ...(sync ? { sync } : {}), text: textOf(repository, stored, sync, now) }
    })
  }
}

function shownSync(sync: Stored<RepositorySync>, now: Date): ShownSync {
  const isOpen = (OPEN_PHASES as readonly string[]).includes(sync.phase)
  const status = isOpen ? 'running' : sync.phase === 'Completed' ? 'completed' : 'failed'
  return { ...sync, status, ...(sync.phase === 'Indexing' ? progressOf(sync, sync.progress?.since, now) : {}) }
}

/**
 * The rate of the files that are done, pauses included, and the time that is left at this rate.
 * @param since the time when its phase began, by the server's clock, as `now` @returns nothing before a first batch is done
 */
export function progressOf(
  { filesIndexed = 0, filesToIndex = 0 }: Pick<RepositorySync, 'filesIndexed' | 'filesToIndex'>,
  since: Date | undefined,
  now: Date,
): Pick<ShownSync, 'filesPerSecond' | 'secondsLeft'> {
  const seconds = since ? (now.getTime() - since.getTime()) / 1_000 : 0
  if (filesIndexed === 0 || seconds <= 0) return {}
  const filesPerSecond = filesIndexed / seconds
  return { filesPerSecond, secondsLeft: Math.max(0, filesToIndex - filesIndexed) / filesPerSecond }
}

function textOf(
  repository: Stored<Repository>,
  stored: Stored<RepositorySync> | undefined,
  sync: ShownSync | undefined,
  now: Date,
): string {
  const { phase, progress, synced } = repository
  const parked = progress?.history?.at(-1)
  if (phase === 'Creating' || phase === 'Updating' || phase === 'Deleting') {
    const why = parked?.outcome === 'park' ? parked.reason : (progress?.waitingFor ?? progress?.error?.message)
    return why === undefined ? phase.toLowerCase() : `${phase.toLowerCase()}: ${why}`
  }
  if (phase === 'Deleted') return 'removed'
  if (!sync || !stored) return 'never synced'
  if (sync.status === 'running') {
    const from = sync.startedAt ?? stored.createdAt ?? now
    const last = stored.progress?.history?.at(-1)
    // A person has cancelled its step, or its run.
    if (last?.outcome === 'park') return `parked: ${last.reason ?? 'no reason'}`
    const { waitingFor, error } = stored.progress ?? {}
    const waits = waitingFor ?? error?.message
    const done =
      sync.phase === 'Indexing' ? ` ${number(sync.filesIndexed ?? 0)} of ${number(sync.filesToIndex ?? 0)} files` : ''
    // A token begins with the name of its replica.
    const by = stored.lockedBy === undefined ? '' : ` by ${stored.lockedBy.split('~')[0]}`
    return `syncing${done} for ${span(from, now)}${by}${waits === undefined ? '' : `, waits: ${waits}`}`
  }
  const at = sync.completedAt ?? stored.createdAt ?? now
  if (sync.status === 'failed')
    return `failed ${span(at, now)} ago: ${sync.error?.message ?? stored.progress?.error?.message ?? 'no reason'}`
  const { commit = '', files = 0, chunks = 0 } = synced ?? {}
  return `in sync with ${commit.slice(0, 8)} since ${span(at, now)}: ${number(files)} files, ${number(chunks)} chunks`
}

const number = (value: number): string => value.toLocaleString('en-US')

function span(from: Date, to: Date): string {
  const seconds = Math.max(0, Math.round((to.getTime() - from.getTime()) / 1_000))
  if (seconds < 120) return `${seconds} s`
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} d`
}
