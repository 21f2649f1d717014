import { expect, test } from '@jest/globals'
import type { BrokenResult } from '../../chaos/broken/run-broken.ts'
import { testServerUri, withDatabase } from '../support/database.js'
import { chaos } from './chaos.js'

const env = () => ({ MONGODB_URI: withDatabase(testServerUri(), 'unused') })

test.each<[string, readonly ('repeated' | 'overlapping')[]]>([
  ['unlock-by-id', ['repeated', 'overlapping']],
  ['client-clock', ['overlapping']],
  ['no-renew', ['overlapping']],
  ['no-token', ['repeated', 'overlapping']],
])(
  'without a protection a figure goes wrong: --break %s',
  async (protection, figures) => {
    const { code, out, err } = await chaos(['--json', '--break', protection], env())
    const result = JSON.parse(out) as BrokenResult
    expect(result).toMatchObject({ broken: protection })
    expect({ wrong: figures.some((figure) => result[figure] > 0), result, err }).toMatchObject({ wrong: true })
    expect(result.off.join()).toMatch(/repeated|overlapping/)
    expect(code).toBe(1)
  },
  900_000,
)

test('refuses a protection that it does not know', async () => {
  const { code, err } = await chaos(['--break', 'nothing'], env())
  expect(code).toBe(2)
  expect(err).toContain('unlock-by-id')
})
