import type { RecordedFile } from '../compare/index.js'
import type { ListedReason } from '../select/index.js'
import type { Head, TreeEntry } from '../source/index.js'

/** The collections of this package. Runs and schedules are those of `phaselock/schedules`. */
export const COLLECTIONS = {
  repositories: 'Repository',
  syncs: 'RepositorySync',
  files: 'repositories.files',
  batches: 'repositories.batches',
} as const

/** The fields of a repository that its owner writes. */
export interface RepositoryFields {
  /** An https, http or ssh URL, or a path; never with a password. */
  readonly url: string
  /** The way to read it: by the system's git, or by GitLab's REST API. Default `git`. */
  readonly source?: 'git' | 'gitlab' | undefined
  /** Default: the repository's default branch. */
  readonly branch?: string | undefined
  /** The files to take, as patterns of a `.gitignore`. Default: all. */
  readonly include?: readonly string[] | undefined
  /** The files to leave out, as patterns of a `.gitignore`. Default: none. */
  readonly exclude?: readonly string[] | undefined
  /** The encodings of files that aren't UTF-8, such as `euc-kr`. Default: such files are skipped. */
  readonly encodings?: readonly string[] | undefined
  /** The largest file in bytes. Default 2,000,000. */
  readonly maxFileBytes?: number | undefined
  /** The name that `credentials` of the options gets. Default: none, for public repositories. */
  readonly profile?: string | undefined
  /** The vector collection. Several repositories may share one. */
  readonly collection: string
  /** The times of its syncs: a cron expression of five fields, an interval, or a time of day. Default: only when someone asks for it. */
  readonly schedule?: SyncSchedule | undefined
  /** False: the schedule runs nothing; `sync` still does. Default true. */
  readonly isActive?: boolean | undefined
}

/** The times of a repository's syncs: exactly one of `cron`, `every` and `dailyAt`. */
export interface SyncSchedule {
  readonly cron?: string | undefined
  /** @example '6h' */
  readonly every?: string | undefined
  /** @example '03:00' */
  readonly dailyAt?: string | undefined
  /** The zone of `cron` and `dailyAt`. Default UTC. */
  readonly timezone?: string | undefined
}

/** The state that was last checked to be in the vector store. */
export interface Synced extends Head {
  /** By the server's clock. */
  readonly at: Date
  /** The settings that decide what is indexed and how, as a hash. */
  readonly settings: string
  /** The collection that the points are in: the repository's own name for it, or that with an ending for another model. */
  readonly collection: string
  readonly files: number
  readonly chunks: number
  /** Stands for the records as they were: each later write of one, by a late writer too, changes it. */
  readonly records: string
  readonly fence: number
}

/** A repository that is kept in sync. */
export interface Repository extends RepositoryFields {
  readonly _id: string
  readonly state?: 'Running' | 'Updating' | 'Deleted'
  readonly phase?: string
  /** Absent: no sync has passed its check yet. */
  readonly synced?: Synced
  /**
   * The fence of the sync that has begun to index since then: its points aren't those of `synced.commit` alone. It stays if the model failed on files:
   * the next sync lists, whatever the commit. Absent: all is in sync with `synced.commit`.
   */
  readonly indexing?: number
  /** The sync that began last: no other one may write. */
  readonly sync?: string
  /** The highest fence that was issued to a step of a sync. */
  readonly writeFence?: number
}

/** The numbers of a sync. */
export interface SyncCounters {
  readonly listed: number
  readonly added: number
  readonly changed: number
  readonly renamed: number
  readonly deleted: number
  readonly unchanged: number
  /** Files whose content isn't indexed, with their reasons in the records. */
  readonly skipped: number
  readonly chunks: number
  readonly embedded: number
  readonly reused: number
  /** Texts that are longer than the model's window. */
  readonly beyondWindow: number
  /** Files whose points were missing or too many in the store, and were written again. */
  readonly mended: number
}

/** The milliseconds and bytes of a sync's stages. */
export interface SyncStages {
  readonly listingMs: number
  readonly readingMs: number
  readonly embeddingMs: number
  readonly storingMs: number
  readonly bytes: number
}

export const NO_COUNTERS: SyncCounters = {
  listed: 0,
  added: 0,
  changed: 0,
  renamed: 0,
  deleted: 0,
  unchanged: 0,
  skipped: 0,
  chunks: 0,
  embedded: 0,
  reused: 0,
  beyondWindow: 0,
  mended: 0,
}
export const NO_STAGES: SyncStages = { listingMs: 0, readingMs: 0, embeddingMs: 0, storingMs: 0, bytes: 0 }

/** One sync of a repository: the entry of the execution log, and the state that any replica goes on from. */
export interface RepositorySync {
  /** That of its run. */
  readonly _id: string
  readonly state?: 'Running' | 'Cancelled'
  readonly phase?: string
  readonly repository: string
  readonly status?: 'running' | 'completed' | 'failed'
  readonly startedAt?: Date
  readonly completedAt?: Date
  readonly durationSeconds?: number
  readonly head?: Head
  readonly settings?: string
  readonly collection?: string
  /** The plan in force: the fence of the step that made it. */
  readonly plan?: number
  /** The numbers of batches to index and to remove, and the next one of the phase. */
  readonly toIndex?: number
  readonly toRemove?: number
  readonly next?: number
  /** The files that the batches to index hold, and those that are done. */
  readonly filesToIndex?: number
  readonly filesIndexed?: number
  /** The fence that was issued to the step that made the plan: all that it indexes has a higher one. */
  readonly from?: number
  /** The records that there must be in the end: those of the listing, or of the sync before if its commit is the same. */
  readonly expected?: Expected
  /** The times that it had to list again: the store was wrong, or the commit was gone. */
  readonly rounds?: number
  readonly counters?: SyncCounters
  readonly stages?: SyncStages
  readonly result?: { readonly commit: string; readonly files: number; readonly chunks: number }
  readonly error?: { readonly name: string; readonly message: string }
}

/** The records that Checking must find. */
export interface Expected {
  readonly files: number
  readonly chunks?: number
  /** Stands for the records that this sync leaves alone. */
  readonly untouched: string
}

/** A file of a plan. */
export interface PlannedFile {
  readonly path: string
  readonly blob: string
  readonly skipped?: ListedReason
}

/** A file of a listing, with the reason for not reading it. */
export interface ListedFile extends TreeEntry {
  readonly skipped: ListedReason | undefined
}

/** A part of a sync's plan: one step's work. */
export interface Batch {
  readonly _id: string
  readonly sync: string
  /** That of the step that made the plan. */
  readonly fence: number
  readonly files?: readonly PlannedFile[]
  readonly removed?: readonly string[]
}

/** The record of a file as it was last indexed. */
export interface FileRecord extends RecordedFile {
  readonly _id: string
  readonly repository: string
  readonly folder: string
  readonly lines: number
  readonly chunks: number
  readonly bytes: number
  /** The reason for having no chunks. */
  readonly reason?: string
  /** That of the step that wrote it: a late writer doesn't replace a later one. */
  readonly fence: number
}
