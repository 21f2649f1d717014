import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, test } from '@jest/globals'
import { testServerUri } from '../support/database.js'

const run = promisify(execFile)

async function bench(...args: string[]): Promise<Record<string, unknown>> {
  const size = ['--documents', '300', '--rounds', '1']
  const { stdout } = await run(process.execPath, ['bench/main.mjs', ...args, ...size], {
    env: { ...process.env, MONGODB_URI: testServerUri() },
  })
  return JSON.parse(stdout)
}

describe('npm run bench', () => {
  test('floor --quick --json prints one object with its figures, every document right', async () => {
    const figures = await bench('floor', '--quick', '--json')
    expect(figures).toMatchObject({ bench: 'floor', quick: true, wrong: 0, batch: 500 })
    expect(figures['floorStepsPerSecond']).toBeGreaterThan(0)
    expect(figures['floorDocumentsPerSecond']).toBeGreaterThan(0)
  }, 400_000)

  test('--server names the server by its URI', async () => {
    const { stdout } = await run(
      process.execPath,
      ['bench/main.mjs', 'floor', '--json', '--documents', '300', '--rounds', '1', '--server', testServerUri()],
      { env: { ...process.env, MONGODB_URI: '' } },
    )
    expect(JSON.parse(stdout)).toMatchObject({ wrong: 0, machine: { engine: expect.stringContaining('uri ') } })
  }, 400_000)

  test('steps --quick --json: every document has its six history entries, none lost, none repeated', async () => {
    const figures = await bench('steps', '--quick', '--json')
    expect(figures).toMatchObject({ bench: 'steps', quick: true, wrong: 0 })
    for (const field of ['stepsPerSecond', 'bareStepsPerSecond', 'floorStepsPerSecond', 'floorShare']) {
      expect(figures[field]).toBeGreaterThan(0)
    }
  }, 400_000)

  test.each([
    [[]],
    [['stepz']],
    [['floor', '--fast']],
    [['floor', '--rounds', '0']],
    [['floor', '--server', '/nowhere/mongod']],
    [['floor', '--server', 'mongodb://127.0.0.1', '--replica-set']],
    [['soak', '--server', 'mongodb://127.0.0.1']],
  ])('%j is refused with the usage', async (args) => {
    await expect(run(process.execPath, ['bench/main.mjs', ...args])).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringContaining('usage: npm run bench'),
    })
  })
})
