import { readdir, readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'

const ROOT = new URL('../../', import.meta.url).pathname
const FOLDER = `${ROOT}docs/origins/`

/** A file of tests, and the beginnings of names of tests in it: `` `test/lock/claim.test.ts` ("takes the document", "puts") ``. */
const CITED = /`(test\/[^`]+\.test\.ts)` \(((?:"[^"]*"(?:, )?)+)\)/g

test('each property of another system names tests that exist', async () => {
  const pages = (await readdir(FOLDER)).filter((name) => name !== 'README.md')
  expect(pages.length).toBeGreaterThanOrEqual(4)
  const missing: string[] = []
  for (const page of pages) {
    const text = await readFile(FOLDER + page, 'utf8')
    for (const row of text.split('\n').filter((line) => /^\| (?!there \||---)/.test(line))) {
      const cited = [...row.split(' | ').at(-1)!.matchAll(CITED)]
      if (cited.length === 0) missing.push(`${page}: no test in: ${row}`)
      for (const [, file, names] of cited) {
        const source = await readFile(ROOT + file, 'utf8').catch(() => '')
        for (const [, name] of names!.matchAll(/"([^"]+)"/g))
          if (![...`'"\``].some((quote) => source.includes(quote + name)))
            missing.push(`${page}: ${file} has no "${name}"`)
      }
    }
  }
  expect(missing).toEqual([])
})
