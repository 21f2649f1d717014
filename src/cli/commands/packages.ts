import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Command } from 'commander'
import type { Db } from 'mongodb'
import { MissingPackage } from '../../config/index.js'
import { type CheckResult, recorded } from '../../operations/index.js'
import { type AuditedEnd, recordedError } from '../../phases/index.js'
import type { PackageAnswer, PackageCall, PackageCheck, PackageCommand, PackageCommands } from '../../tasks/index.js'
import { byAndReason, byFrom } from '../by.js'
import { type CliContext, lookAtDatabase, type Options, onDatabase } from '../context.js'
import { CliError, EXIT } from '../errors.js'
import { isKnown } from '../report-error.js'
import { merged, withDatabase } from './command.js'

/** The commands that packages beside phaselock bring, with what each does. */
const COMMANDS = [
  { name: 'config', from: 'phaselock-state', about: 'show and change the configuration that all replicas share' },
  { name: 'logins', from: 'phaselock-state', about: 'show the logins that all replicas share, and rotate their keys' },
  { name: 'repositories', from: 'phaselock-repositories', about: 'show, sync and search repositories' },
] as const

type Known = (typeof COMMANDS)[number]

/**
 * Adds the commands of packages. A package is loaded only if `argv` has the name of one of its commands; of the others the help shows one line.
 * The name may be another command's argument (`list config`): a package that can't be loaded fails only its own commands.
 */
export async function registerPackages(program: Command, context: CliContext, argv: readonly string[]): Promise<void> {
  for (const known of COMMANDS) {
    const command = program.command(known.name).description(`${known.about} (${known.from})`)
    const missing = new MissingPackage(`phaselock ${known.name}`, [known.from])
    const found = argv.includes(known.name)
      ? await commandsOf(known, context).catch((error: CliError) => error)
      : undefined
    if (Array.isArray(found)) for (const one of found) register(command, known, one, context)
    else refuse(command, (found as CliError | undefined) ?? missing)
  }
}

/** The exports of the entry `./cli` of a package. */
interface PackageCli {
  readonly commands?: PackageCommands
  readonly check?: PackageCheck
}

/** The findings of `phaselock check` in what installed packages keep in the database. A package whose check fails has that as its one finding. */
export async function checkPackages({ cwd }: CliContext, db: Db): Promise<CheckResult[]> {
  const packages = [...new Set(COMMANDS.map(({ from }) => from))]
  const results = packages.map(async (from) => {
    const found = async () => {
      const check = (await loaded(from, cwd))?.check
      return check && (await check(db))
    }
    const findings = await found().catch((error: unknown) => [failedCheck(error)])
    if (!findings) return []
    return [
      {
        check: from.replace('phaselock-', ''),
        said: 'nothing refused',
        findings: findings.map((one) => ({ ...one, repair: 'none' as const })),
      },
    ]
  })
  return (await Promise.all(results)).flat()
}

const failedCheck = (error: unknown) => ({
  about: 'its check',
  problem: recordedError(error).message,
  advice: 'install the version of phaselock, or correct what it says',
})

/** The package's commands; undefined if it isn't installed beside the user's code or beside phaselock. */
async function commandsOf({ name, from }: Known, { cwd }: CliContext): Promise<readonly PackageCommand[] | undefined> {
  const cli = await loaded(from, cwd)
  if (!cli) return undefined
  const own = cli.commands?.[name]
  if (own) return own
  const problem = `phaselock ${name}: expected ${from} to have this command, got a version without it; install the version of phaselock`
  throw new CliError('PackageUnusable', EXIT.failure, problem)
}

async function loaded(from: string, cwd: string): Promise<PackageCli | undefined> {
  const file = [join(cwd, 'package.json'), import.meta.url].map((place) => located(from, place)).find(Boolean)
  if (file === undefined) return undefined
  try {
    return (await import(pathToFileURL(file).href)) as PackageCli
  } catch (cause) {
    const problem = `${from} can't be loaded: ${(cause as Error).message}`
    throw new CliError('PackageUnusable', EXIT.failure, problem, { cause })
  }
}

function located(from: string, place: string): string | undefined {
  try {
    return createRequire(place).resolve(`${from}/cli`)
  } catch {
    return undefined
  }
}

/** A command whose package isn't installed, or can't be loaded, only says so, whatever follows it. */
function refuse(command: Command, problem: Error): void {
  command
    .argument('[arguments...]')
    .allowUnknownOption()
    .action(() => {
      throw problem
    })
}

function register(parent: Command, { name }: Known, one: PackageCommand, context: CliContext): void {
  const isDefault = one.name === ''
  const command = isDefault ? parent : parent.command(one.name).description(one.about)
  for (const [argument, about] of Object.entries(one.arguments ?? {})) command.argument(argument, about)
  for (const [flags, about] of Object.entries(one.options ?? {})) command.option(flags, about)
  if (one.changes) byAndReason(command)
  withDatabase(command, one.examples)
  const action = isDefault ? name : `${name} ${one.name}`
  command.action(async (...given: unknown[]) => {
    const sub = given.at(-1) as Command
    const options = merged(sub)
    const args = given.slice(0, -2) as (string | string[] | undefined)[]
    await (one.changes ? onDatabase : lookAtDatabase)(context, options, async (system) => {
      const call: PackageCall = {
        db: system.db,
        env: context.env,
        args: args.filter((arg) => !Array.isArray(arg)) as (string | undefined)[],
        more: args.filter(Array.isArray).flat(),
        options: options as PackageCall['options'],
        by: byFrom(options),
        reason: options['reason'] as string | undefined,
      }
      const target = call.args[0] === undefined ? {} : { target: `${name} ${call.args[0]}` }
      print(
        context,
        options,
        await recorded(system, { action, ...target }, () => one.run(call).catch(forPeople), endOf),
      )
    })
  })
}

/** Errors that a package names are for the reader, without a stack; a TypeError is a bug, and keeps it. */
function forPeople(error: unknown): never {
  const isNamed = error instanceof Error && !/^([A-Z][a-z]+|URI)?Error$/.test(error.name)
  throw isNamed && !isKnown(error) ? new CliError(error.name, EXIT.failure, error.message, { cause: error }) : error
}

const endOf = ({ audit: { unchanged, ...around } = {} }: PackageAnswer): AuditedEnd => ({
  outcome: unchanged ? 'unchanged' : 'done',
  ...around,
})

function print({ output }: CliContext, { json }: Options, answer: PackageAnswer): void {
  const { head, rows = [], lines = [] } = answer
  if (json) output.json(answer.json)
  else {
    if (head && rows.length > 0) output.table(head, rows)
    for (const line of lines) output.line(line)
  }
}
