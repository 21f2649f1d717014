import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'

const MODULE = join(import.meta.dirname, '../../dist/lean-heap.js')

/** Makes objects of which a part lives for a while, as documents do that are being worked on. */
const BURST = `
  import { getHeapSpaceStatistics } from 'node:v8'
  const recent = []
  for (let i = 0; i < 2_000_000; i += 1) recent[i % 20_000] = { number: i, text: [i, i] }
  const { space_size } = getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space')
  console.log(said, space_size / 2 ** 20)
`

function burst(how: string, options: string[] = []): [said: string, newSpaceMb: number] {
  const program = `import { keepHeapLean } from ${JSON.stringify(MODULE)}\nconst said = ${how}\n${BURST}`
  const { stdout, stderr } = spawnSync(process.execPath, [...options, '--input-type=module', '-e', program], {
    encoding: 'utf8',
    env: { ...process.env, NODE_OPTIONS: '' },
  })
  expect(stderr).toBe('')
  const [said, megabytes] = stdout.trim().split(' ')
  return [said!, Number(megabytes)]
}

test('the space for new objects stays small, unless Node was told how large it may be', () => {
  const [saidNothing, usual] = burst(`'nothing'`)
  const [said, lean] = burst('keepHeapLean()')
  const [saidNo, asTold] = burst('keepHeapLean()', ['--max-semi-space-size=32'])
  expect([saidNothing, said, saidNo]).toEqual(['nothing', 'true', 'false'])
  expect(lean).toBeLessThan(usual / 4)
  expect(asTold).toBeGreaterThan(lean * 4)
})
