import { readFile } from 'node:fs/promises'
import { PassThrough } from 'node:stream'
import { describe, expect, test } from '@jest/globals'
import { EXIT } from '../../src/cli/errors.js'
import { Output } from '../../src/cli/output.js'
import { buildProgram } from '../../src/cli/program.js'
import { Schedules } from '../../src/schedules/index.js'
import { replicaMetrics } from '../../src/telemetry/index.js'

describe('docs/cli.md', () => {
  const page = () => readFile(new URL('../../docs/cli.md', import.meta.url), 'utf8')

  test('describes every command, and each has examples', async () => {
    const output = new Output(new PassThrough(), new PassThrough())
    const context = { env: {}, cwd: '/', stdin: new PassThrough(), output }
    const program = await buildProgram(context)
    const text = await page()
    for (const command of program.commands) {
      expect(text).toContain(`## phaselock ${command.name()}\n`)
      // A hidden one only says what has replaced it.
      for (const { description, hidden } of command.options) expect(hidden || description !== '').toBe(true)
    }
  })

  test('lists every exit code', async () => {
    const text = await page()
    for (const code of Object.values(EXIT)) expect(text).toMatch(new RegExp(`^\\| ${code} +\\| `, 'm'))
  })

  test('lists every metric', async () => {
    const { lifecycles } = new Schedules()
    const { registry, watch } = replicaMetrics({ db: { collection() {} } as never, lifecycles, processMetrics: false })
    const counts = {
      held: 0,
      queued: 0,
      running: 0,
      abandoned: 0,
      skipped: 0,
      replicas: {},
      paused: [],
      problems: [],
      limits: [],
    }
    watch({ status: () => ({ identity: 'x', notReady: [], ...counts, doorbell: 'off' }) })
    const text = await page()
    for (const { name } of registry.getMetricsAsArray()) expect(text).toContain(`\`${name}`)
  })
})
