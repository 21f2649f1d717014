import { readdir } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import { codeBlocks, readPage } from './page.js'

const EXAMPLE = new URL('../../examples/nest-app/', import.meta.url)

test('docs/guides/jest.md shows the test file and every config of the example, word for word', async () => {
  const files = (await readdir(EXAMPLE)).filter((name) => /\.e2e-spec\.ts$|\.config\.cjs$/.test(name))
  expect(files).toHaveLength(5)
  const contents = await Promise.all(files.map((name) => readPage(`examples/nest-app/${name}`)))
  const shown = codeBlocks(await readPage('docs/guides/jest.md')).filter(({ language }) => language !== 'sh')
  expect(shown.map(({ code }) => `${code}\n`).sort()).toEqual(contents.sort())
})
