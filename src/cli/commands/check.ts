import { type Command } from 'commander'
import { type CheckResult, checkDatabase, type Finding } from '../../operations/index.js'
import { type CliContext, inWorkspace, type Options } from '../context.js'
import { FindingsLeft } from '../errors.js'
import type { Output } from '../output.js'
import type { Workspace } from '../workspace.js'
import { examples, withDatabase } from './document-command.js'

export function registerCheck(program: Command, context: CliContext): void {
  const command = program
    .command('check')
    .description('look over a database: indexes, query plans, clocks, documents and lifecycles that nobody works on')
    .option('--repair', 'mend what is safe while replicas run')
    .action((options: Options) => check(context, options))
  withDatabase(command).addHelpText('after', examples('check', 'check --json', 'check --repair'))
}

async function check(context: CliContext, options: Options): Promise<void> {
  const repair = options['repair'] === true
  const use = async (workspace: Workspace) => {
    const models = workspace.lifecycles.map(({ model }) => model)
    const results = await checkDatabase({ db: workspace.connection.db, models, repair })
    const findings = results.flatMap((result) => result.findings)
    const left = findings.filter(({ repair }) => repair !== 'done').length
    if (options['json']) context.output.json({ checks: results, found: findings.length, left })
    else print(context.output, results)
    if (left > 0) throw new FindingsLeft(left, findings.filter(({ repair }) => repair === 'possible').length)
  }
  await inWorkspace(context, options, use, repair ? 'writes' : 'reads')
}

function print(output: Output, results: readonly CheckResult[]): void {
  const width = Math.max(...results.map(({ check }) => check.length))
  for (const { check, said, findings } of results) {
    if (findings.length === 0) output.line(`ok  ${check.padEnd(width)}  ${said}`)
    for (const finding of findings) printFinding(output, check.padEnd(width), finding)
  }
}

const MARKS: Record<Finding['repair'], string> = { none: '!! ', possible: '!! ', done: 'ok ' }

function printFinding(output: Output, check: string, { about, problem, advice, repair }: Finding): void {
  output.line(`${MARKS[repair]} ${check}  ${about}: ${problem}`)
  output.line(`    ${' '.repeat(check.length)}  ${repair === 'done' ? 'repaired' : `-> ${advice}`}`)
}
