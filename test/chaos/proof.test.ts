import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from '@jest/globals'
import type { DemoResult } from '../../chaos/proof/verdict.ts'
import { eventually } from '../support/database.js'
import { childrenOf, isAlive, runProgram } from '../support/programs.js'

/** `npm run demo -- --proof`, on the run's server. */
const proof = (args: readonly string[], { onText }: { onText?: (text: string, pid: number) => void } = {}) =>
  runProgram(['--disable-warning=ExperimentalWarning', 'chaos/demo.ts', '--proof', ...args], onText)
const replicasOf = (pid: number) => childrenOf(pid, 'proof/replica-process.ts')

describe('npm run demo -- --proof', () => {
  test('three replicas, one killed, one stopped, one paused: every recorded step happened once', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'phaselock-demo-test-'))
    try {
      const run = await proof(['--json', '--ledger', join(folder, 'ledger.jsonl')])
      const result = JSON.parse(run.out) as DemoResult
      expect({ error: null, ...result, err: run.code === 0 ? '' : run.err }).toMatchObject({
        error: null,
        verdict: 'shown',
        err: '',
        off: [],
        notShown: [],
        lost: 0,
        repeated: 0,
        overlapping: 0,
      })
      expect(run.code).toBe(0)
      expect(result.documents).toBeGreaterThanOrEqual(300)
      expect(result.refusedLateWrites).toBeGreaterThanOrEqual(1)
      // A starved machine makes them longer, and the verdict knows: test/chaos/verdict.test.ts.
      expect(result.recoverySeconds).toBeGreaterThan(0)
      expect(result.handoverSeconds).toBeGreaterThan(0)
      const ledger = (await readFile(join(folder, 'ledger.jsonl'), 'utf8')).trim().split('\n')
      expect(ledger.filter((line) => line.includes('"kind":"begin"'))).toHaveLength(result.stepsBegun)
    } finally {
      await rm(folder, { recursive: true, force: true, maxRetries: 10 })
    }
  }, 900_000)

  test('interrupted or killed, it leaves no process behind', async () => {
    for (const [signal, exitCode] of [
      ['SIGINT', 130],
      ['SIGKILL', null],
    ] as const) {
      let replicas: number[] = []
      let asked = false
      const { code } = await proof(['--documents', '150'], {
        onText: (text, pid) => {
          if (asked || !text.includes('inserted')) return
          asked = true
          void replicasOf(pid).then((found) => {
            replicas = found
            // The hardest case: one of them can't end by itself. The demo kills one, too, so the first may be gone.
            found.some((replica) => isAlive(replica) && process.kill(replica, 'SIGSTOP'))
            process.kill(pid, signal)
          })
        },
      })
      expect(code).toBe(exitCode)
      expect(replicas.length).toBeGreaterThanOrEqual(2)
      await eventually(() => replicas.filter(isAlive).length === 0, { timeoutMs: 60_000 })
    }
  }, 240_000)
})
