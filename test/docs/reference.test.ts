import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from '@jest/globals'
import { entries, ROOT } from '../../tools/docs/entries.ts'
import { readSidebar, readSite } from '../../tools/docs/pages.ts'

/** The code of `@example` in the comment of the whole file, which begins it. */
async function exampleOf(source: string): Promise<string | undefined> {
  const text = await readFile(join(ROOT, source), 'utf8')
  const [comment] = /^\/\*\*[\s\S]*?@packageDocumentation\n \*\//.exec(text) ?? []
  const lines = comment?.replace(/^ \* ?/gm, '')
  return /@example\n```ts\n([\s\S]*?)\n```/.exec(lines ?? '')?.[1]
}

describe('the API reference', () => {
  test('each entry of the package has an example, which compiles', async () => {
    const examples = await Promise.all(
      (await entries()).map(async ({ name, source }) => ({ name, code: await exampleOf(source) })),
    )
    expect(examples.filter(({ code }) => code === undefined)).toEqual([])
    expect(examples.filter(({ name, code }) => !code?.includes(` from '${name}'`))).toEqual([])
    // In the repository, so that the examples' imports are found.
    const folder = await mkdtemp(join(ROOT, 'test/docs/.examples-'))
    try {
      for (const [at, { code = '' }] of examples.entries())
        await writeFile(join(folder, `example-${at}.ts`), `${code}\n`)
      const config = {
        extends: '../../../tsconfig.json',
        include: [],
        files: examples.map((_, at) => `example-${at}.ts`),
      }
      await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config))
      const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
      const { stdout } = await promisify(execFile)(process.execPath, [tsc, '-p', folder]).catch((error) => error)
      expect(stdout).toBe('')
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  }, 60_000)
})

describe('the site', () => {
  test("its side bar has each page of docs, decisions in theirs, and links to the site's own pages only", async () => {
    const { pages } = await readSite()
    const links = (await readSidebar()).flatMap(({ items }) => items.map(({ link }) => link.slice(1)))
    const known = new Set([...pages.map(({ to }) => to), ...(await entries()).map(({ page }) => page)])
    expect(links.filter((link) => !known.has(link))).toEqual([])
    const files = (await readdir(join(ROOT, 'docs'), { recursive: true })).filter((name) => name.endsWith('.md'))
    const missing = files.filter(
      (name) => !links.includes(`docs/${name.replace('README.md', 'index.md')}`) && !/^decisions\/\d/.test(name),
    )
    expect(missing).toEqual(['README.md']) // its own page, in the bar at the top
  })
})
