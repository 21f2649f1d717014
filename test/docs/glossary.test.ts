import { readdir, readFile } from 'node:fs/promises'
import { join, normalize } from 'node:path'
import { expect, test } from '@jest/globals'

const DOCS = new URL('../../docs/', import.meta.url).pathname

const read = (page: string) => readFile(join(DOCS, page), 'utf8')

/** By its term: the page that explains it, and the words of other systems for it. */
const rows = [
  ...(await read('glossary.md')).matchAll(/^\| \[([^\]]+)\]\(([^)#]+)(?:#[^)]*)?\) \| .+? \| (.*?) ?\|$/gm),
].map(([, term, page, elsewhere]) => ({
  term: term!,
  page: page!,
  elsewhere: elsewhere === '' ? [] : elsewhere!.split(', '),
}))
const terms = rows.map(({ term }) => term)

/** As a whole word, also as a plural. */
const says = (text: string, word: string) =>
  new RegExp(`(?<![\\w-])${word.replace(/[^\w -]/g, '\\$&')}(?:s|es|ing|ed|ren)?(?![\\w-])`, 'i').test(text)

/** Those that speak of other systems by their words, or of nothing that a user sees. */
const OF_OTHERS = /^(?:origins\/|decisions\/|choosing\.md|compare\/|guides\/moving-from-cron-services\.md|tasks\/)/

test('the glossary has 40 terms at most, each once, in order', () => {
  expect(terms.length).toBeGreaterThan(20)
  expect(terms.length).toBeLessThanOrEqual(40)
  const order = (a: string, b: string) => a.toLowerCase().localeCompare(b.toLowerCase(), 'en')
  expect(terms).toEqual([...new Set(terms)].sort(order))
})

test('the page that explains a term uses it', async () => {
  const texts = await Promise.all(
    rows.map(async ({ term, page }) => ({ term, page, text: await read(normalize(page)) })),
  )
  expect(texts.filter(({ term, text }) => !says(text, term)).map(({ term, page }) => `${page}: ${term}`)).toEqual([])
})

test("no page's title has another system's word for a term of ours", async () => {
  const pages = (await readdir(DOCS, { recursive: true })).filter(
    (name) => name.endsWith('.md') && !OF_OTHERS.test(name),
  )
  const others = rows.flatMap(({ elsewhere }) => elsewhere).filter((word) => !terms.includes(word))
  const found: string[] = []
  for (const page of pages) {
    const [, title = ''] = /^# (.+)$/m.exec(await read(page)) ?? []
    for (const word of others) if (says(title, word)) found.push(`${page}: '${word}' in '${title}'`)
  }
  expect(found).toEqual([])
})
