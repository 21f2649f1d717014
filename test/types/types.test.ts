import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'

const said = (project: string): Promise<string> =>
  promisify(execFile)('node_modules/.bin/tsc', ['-p', project, '--pretty', 'false']).then(
    () => '',
    (error: { stdout: string }) => error.stdout,
  )

test('the type tests of this folder compile: what must be refused is refused, what must pass passes', async () => {
  expect(await said('test/types/tsconfig.json')).toBe('')
})

test('the published declarations are whole: nothing that they name was stripped from them', async () => {
  const lines = (await said('test/types/published/tsconfig.json')).split('\n')
  expect(lines.filter((line) => line.startsWith('dist/'))).toEqual([])
})
