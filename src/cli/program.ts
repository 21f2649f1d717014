import { Command } from 'commander'
import { packageVersion } from '../config/index.js'
import { nearest } from '../options/index.js'
import { registerBackfills } from './commands/backfills.js'
import { registerCallbacks } from './commands/callbacks.js'
import { registerCauses } from './commands/causes.js'
import { registerCheck } from './commands/check.js'
import { registerCompletion } from './commands/completion.js'
import { registerCount } from './commands/count.js'
import { registerFlow } from './commands/flow.js'
import { registerLifecycles } from './commands/lifecycles.js'
import { registerLimits } from './commands/limits.js'
import { registerList } from './commands/list.js'
import { registerLocks } from './commands/locks.js'
import { registerOperations } from './commands/operations.js'
import { registerOrphans } from './commands/orphans.js'
import {
  registerAdd,
  registerCancel,
  registerRemove,
  registerSetState,
  registerUnpark,
  registerWake,
} from './commands/owner.js'
import { registerPackages } from './commands/packages.js'
import { registerPause, registerPauses, registerResume } from './commands/pause.js'
import { registerAnswer, registerQuestions } from './commands/questions.js'
import { registerAudit, registerEvents } from './commands/records.js'
import { registerRegions } from './commands/regions.js'
import { registerReplicas } from './commands/replicas.js'
import { registerRun, registerRuns } from './commands/runs.js'
import { registerSchedules } from './commands/schedules.js'
import { registerSetLockTimeout } from './commands/set-lock-timeout.js'
import { registerShow } from './commands/show.js'
import { registerStart } from './commands/start.js'
import { registerStatus } from './commands/status.js'
import { registerWhy } from './commands/why.js'
import type { CliContext } from './context.js'
import { registerDemo } from './demo/index.js'

const EXIT_CODES = `
Exit codes:
  0    done
  1    failed: the database, or something unexpected
  2    the command line or a setting is invalid
  3    no such document, or no lifecycles in the database
  4    refused: the document is held, not held, parked, not parked, or exists already; a change of lockTimeout is under way;
       a Region or a lifecycle is in use; it is not paused; it asks nothing, or takes another answer;
       it has changed since it was --seen
  5    check: something was found; status --exit-code: something needs a person
  130  interrupted by a second SIGINT

Give a document's _id as plain text, ObjectId("...") or Extended JSON. Settings: docs/settings.md.`

/**
 * The whole grammar of the command line.
 * @param argv the command line to come, which decides if a package's commands are loaded
 * @param quiet errors of the command line are only thrown, not printed
 */
export async function buildProgram(context: CliContext, quiet = false, argv: readonly string[] = []): Promise<Command> {
  const program = new Command('phaselock')
    .description('Documents with a phase in MongoDB, claimed by lockedAt and advanced step by step.')
    .version(await packageVersion(), '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand('help [command]', 'print the help of a command')
    .addHelpText('after', EXIT_CODES)
    .exitOverride()
    .configureOutput({
      // Help and errors go to the same output as everything else.
      writeOut: (text) => context.output.raw(text),
      writeErr: (text) => {
        if (!quiet) context.output.problem(text)
      },
      // A suggestion is the last line: nothing comes after it.
      outputError: (text, write) => write(text.includes(MEANT) ? text : `${text}(see --help)\n`),
    })
    .hook('preAction', (_program, command) => refuseUnknownSubcommand(command))
  registerStart(program, context)
  registerAdd(program, context)
  registerList(program, context)
  registerCount(program, context)
  registerShow(program, context)
  registerWhy(program, context)
  registerSetState(program, context)
  registerWake(program, context)
  registerUnpark(program, context)
  registerCancel(program, context)
  registerRemove(program, context)
  registerPause(program, context)
  registerResume(program, context)
  registerPauses(program, context)
  registerQuestions(program, context)
  registerAnswer(program, context)
  registerCallbacks(program, context)
  registerOperations(program, context)
  registerEvents(program, context)
  registerAudit(program, context)
  registerCheck(program, context)
  registerSetLockTimeout(program, context)
  registerStatus(program, context)
  registerCauses(program, context)
  registerReplicas(program, context)
  registerFlow(program, context)
  registerLifecycles(program, context)
  registerLimits(program, context)
  registerLocks(program, context)
  registerSchedules(program, context)
  registerRun(program, context)
  registerRuns(program, context)
  registerBackfills(program, context)
  registerRegions(program, context)
  registerOrphans(program, context)
  await registerPackages(program, context, argv)
  registerDemo(program, context)
  registerCompletion(program, context)
  // Their surplus arguments are refused below, with a better message.
  for (const one of program.commands) if (one.commands.length > 0) one.allowExcessArguments()
  return program
}

/** The beginning of the line with commander's suggestion. */
const MEANT = '(Did you mean '

/** Refuses an unknown subcommand of a command that also works without one: commander would only count its arguments (`limits st`). */
function refuseUnknownSubcommand(command: Command): void {
  const { args, commands, registeredArguments } = command
  const [unknown] = args.slice(registeredArguments.length)
  if (unknown === undefined || commands.length === 0) return
  const near = nearest(
    unknown,
    commands.map((one) => one.name()),
  )
  const meant = near === undefined ? '' : `\n${MEANT}${near}?)`
  command.error(`error: unknown command '${command.name()} ${unknown}'${meant}`, { code: 'commander.unknownCommand' })
}
