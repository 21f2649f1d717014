import ignore from 'ignore'
import type { TreeEntry } from '../source/index.js'
import type { GeneratedFiles } from './generated.js'

/** The reasons that the listing alone gives for leaving a file's content out. */
export const LISTED_REASONS = ['symlink', 'submodule', 'too large', 'generated'] as const
export type ListedReason = (typeof LISTED_REASONS)[number]

/** The part of a repository that is indexed. */
export interface SelectionSettings {
  /** The files to take, as patterns of a `.gitignore`; empty or absent: all. */
  readonly include?: readonly string[] | undefined
  /** The files to leave out, as patterns of a `.gitignore`: `['node_modules/', '*.min.js', '!keep.min.js']`. */
  readonly exclude?: readonly string[] | undefined
  /** The largest file in bytes. Default 2,000,000. */
  readonly maxFileBytes?: number | undefined
}

export const DEFAULT_MAX_FILE_BYTES = 2_000_000
const MOST_PATTERNS = 1_000
const PATTERN_LENGTH = 500

/** Says what is wrong with lists of patterns; an empty list: nothing. */
export function patternProblems(name: string, patterns: unknown): string[] {
  if (patterns === undefined || patterns === null) return []
  if (!Array.isArray(patterns)) return [`${name}: expected a list of patterns, got ${typeof patterns}`]
  if (patterns.length > MOST_PATTERNS)
    return [`${name}: expected at most ${MOST_PATTERNS} patterns, got ${patterns.length}`]
  return patterns.flatMap((pattern, i) =>
    typeof pattern === 'string' && pattern !== '' && pattern.length <= PATTERN_LENGTH
      ? []
      : [`${name}.${i}: expected a pattern of 1 to ${PATTERN_LENGTH} characters`],
  )
}

/** Decides by a listing alone which files of a repository are indexed. */
export class FileSelection {
  private readonly included: ReturnType<typeof ignore> | undefined
  private readonly excluded: ReturnType<typeof ignore> | undefined
  readonly maxFileBytes: number

  /** @throws RangeError */
  constructor({ include = [], exclude = [], maxFileBytes = DEFAULT_MAX_FILE_BYTES }: SelectionSettings) {
    const problems = [...patternProblems('include', include), ...patternProblems('exclude', exclude)]
    if (!Number.isSafeInteger(maxFileBytes) || maxFileBytes < 1)
      problems.push(`maxFileBytes: expected a whole number of bytes from 1, got ${maxFileBytes}`)
    if (problems.length > 0) throw new RangeError(problems.join('; '))
    // Case counts, as it does for git on Linux; and a tree may hold names that no working folder has.
    const options = { ignorecase: false, allowRelativePaths: true }
    // `ignore` remembers every path that it was asked about: 9 us and 220 bytes each.
    const of = (patterns: readonly string[]) => (patterns.length === 0 ? undefined : ignore(options).add([...patterns]))
    this.included = of(include)
    this.excluded = of(exclude)
    this.maxFileBytes = maxFileBytes
  }

  /** Checks if the owner's patterns take this path. */
  takes(path: string): boolean {
    return (this.included?.ignores(path) ?? true) && !this.excluded?.ignores(path)
  }

  /** The reason for not reading the content of a file that the patterns take; undefined: it is read. */
  reason({ kind, bytes, path }: TreeEntry, generated: GeneratedFiles): ListedReason | undefined {
    if (kind !== 'file') return kind
    if (bytes !== undefined && bytes > this.maxFileBytes) return 'too large'
    return generated.has(path) ? 'generated' : undefined
  }
}
