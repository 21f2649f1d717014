import type { Db } from 'mongodb'

/**
 * One subcommand that a package adds to the command line. A package exports a list of them as `commands` of its entry `./cli`, an object with
 * one list for each command: `phaselock config set ...` runs the one named `set` of `commands.config`. The options of the database, `--json` and,
 * for commands that change something, `--by` and `--reason` belong to every command and aren't declared.
 *
 * @example
 * ```ts
 * export const commands: PackageCommands = {
 *   config: [
 *     {
 *       name: 'history',
 *       about: 'list the versions of a value',
 *       arguments: { '<name>': 'the name of the configuration' },
 *       examples: ['config history mail'],
 *       async run({ db, args: [name] }) {
 *         const versions = await db.collection('config').find({ name }).toArray()
 *         return { json: versions, head: ['version'], rows: versions.map(({ version }) => [String(version)]) }
 *       },
 *     },
 *   ],
 * }
 * ```
 */
export interface PackageCommand {
  /** The word that selects it; an empty name is what the command does without one. */
  readonly name: string
  /** One line for the help, in the imperative. */
  readonly about: string
  /** Its arguments, in order, with what each means: `<name>` is required, `[name]` optional, `<name...>` takes all that follow. */
  readonly arguments?: Readonly<Record<string, string>>
  /** Its options, with what each means: `--expect-version <n>` takes a value, `--all` takes none. */
  readonly options?: Readonly<Record<string, string>>
  /** Command lines without `phaselock`, for the help. */
  readonly examples: readonly string[]
  /** True if it changes something: it takes `--by` and `--reason`, and the audit keeps an entry of it. Default false. */
  readonly changes?: boolean
  /** Runs it. Errors of `phaselock/operations` (UsageError, NotFound, Refused) decide the exit code. */
  run(call: PackageCall): Promise<PackageAnswer>
}

/** The subcommands of each command that a package adds. */
export type PackageCommands = Readonly<Record<string, readonly PackageCommand[]>>

/** Looks for problems in the data of a package, for `phaselock check`: the entry `./cli` exports it as `check`. */
export type PackageCheck = (
  db: Db,
) => Promise<readonly { readonly about: string; readonly problem: string; readonly advice: string }[]>

/** A command line as a package's command gets it. */
export interface PackageCall {
  /** The database that the settings name. */
  readonly db: Db
  /** The environment variables. */
  readonly env: Readonly<Record<string, string | undefined>>
  /** The values of the declared arguments, in order; one that was left out is undefined. */
  readonly args: readonly (string | undefined)[]
  /** The values of `<name...>` arguments. */
  readonly more: readonly string[]
  /** The values of the declared options, by their names in camelCase: `expectVersion`. Those without a value are true. */
  readonly options: Readonly<Record<string, string | true | undefined>>
  /** The author: `--by`, or the user of the operating system. */
  readonly by: string
  /** The reason that was given. */
  readonly reason?: string | undefined
}

/** The answer of a package's command, for programs and for people. */
export interface PackageAnswer {
  /** The value that `--json` prints, on one line. */
  readonly json: unknown
  /** The head of a table for people. Default: no table. */
  readonly head?: readonly string[]
  /** The rows of that table. */
  readonly rows?: readonly (readonly string[])[]
  /** Lines for people, after the table. */
  readonly lines?: readonly string[]
  /** The entry in the audit of a command that changed something: the thing, and its values before and after. */
  readonly audit?: { readonly before?: unknown; readonly after?: unknown; readonly unchanged?: boolean }
}
