import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'

test('the type tests of this folder compile: what must be refused is refused, what must pass passes', async () => {
  const compiled = promisify(execFile)('node_modules/.bin/tsc', ['-p', 'test/types/tsconfig.json', '--pretty', 'false'])
  const said = await compiled.then(
    () => '',
    (error: { stdout: string }) => error.stdout,
  )
  expect(said).toBe('')
})
