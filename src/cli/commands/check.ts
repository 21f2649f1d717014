import type { Command } from 'commander'
import { type CheckResult, checkDatabase, recorded } from '../../operations/index.js'
import type { AuditedEnd } from '../../phases/index.js'
import { byAndReason } from '../by.js'
import { type CliContext, lookAtSystem, type Options, onSystem } from '../context.js'
import { CliError, EXIT } from '../errors.js'
import type { Output } from '../output.js'
import { withDatabase } from './command.js'
import { checkPackages } from './packages.js'

export function registerCheck(program: Command, context: CliContext): void {
  const command = program
    .command('check')
    .description('check a database: indexes, query plans, clocks, documents, and lifecycles that no replica works on')
    .option('--repair', 'repair what can safely be repaired while replicas run')
    .action((options: Options) => {
      const repair = options['repair'] === true
      return (repair ? onSystem : lookAtSystem)(context, options, async (system) => {
        const { db, models } = system
        const act = async () => [
          ...(await checkDatabase({ db, models, repair })),
          ...(await checkPackages(context, db)),
        ]
        const checks = await recorded(system, { action: 'check --repair' }, act, endOfRepair)
        const findings = checks.flatMap((check) => check.findings)
        const left = findings.filter(({ repair }) => repair !== 'done').length
        if (options.json) context.output.json({ checks, found: findings.length, left })
        else print(context.output, checks)
        if (left === 0) return
        const repairable = findings.filter(({ repair }) => repair === 'possible').length
        const found = `expected nothing to be found, got ${left} finding${left === 1 ? '' : 's'}`
        const advice = repairable > 0 ? `; phaselock check --repair repairs ${repairable}` : ''
        throw new CliError('FindingsLeft', EXIT.found, `${found}${advice}`)
      })
    })
  withDatabase(byAndReason(command), ['check', 'check --json', 'check --repair'])
}

function endOfRepair(checks: readonly CheckResult[]): AuditedEnd {
  const repaired = checks.flatMap(({ findings }) => findings.filter(({ repair }) => repair === 'done'))
  const after = repaired.map(({ about, problem }) => `${about}: ${problem}`)
  return repaired.length > 0 ? { outcome: 'done', after } : { outcome: 'unchanged' }
}

function print(output: Output, results: readonly CheckResult[]): void {
  const width = Math.max(...results.map(({ check }) => check.length))
  for (const { check, said, findings } of results) {
    if (findings.length === 0) output.line(`ok  ${check.padEnd(width)}  ${said}`)
    for (const { about, problem, advice, repair } of findings) {
      output.line(`${repair === 'done' ? 'ok ' : '!! '} ${check.padEnd(width)}  ${about}: ${problem}`)
      output.line(`    ${' '.repeat(width)}  ${repair === 'done' ? 'repaired' : `-> ${advice}`}`)
    }
  }
}
