import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from '@jest/globals'
import { problemsOf } from '../../tools/docs/check-site.ts'
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

  test('what is checked when it is built: dead links and anchors, and whatever comes from another host', async () => {
    const site = await mkdtemp(join(tmpdir(), 'phaselock-site-'))
    try {
      const page = `<h1 id="here">Here</h1><a href="#here">there</a><a href="b.html#its-heading">there</a>
        <a href="https://example.org/">leads out, as a reader may</a><a href="gone.html">dead</a><a href="b.html#gone">dead</a>
        <script src="https://cdn.example.org/a.js"></script><link rel="stylesheet" href="//cdn.example.org/a.css">`
      await writeFile(join(site, 'index.html'), page)
      await writeFile(join(site, 'b.html'), '<h2 id="its-heading">Its heading</h2>')
      await writeFile(join(site, 'a.js'), 'const { b } = await import("https://cdn.example.org/b.js")')
      expect(await problemsOf(site)).toEqual([
        'a.js loads import("https://cdn.example.org/b.js',
        'index.html loads <link rel="stylesheet" href="//cdn.example.org/a.css"',
        'index.html loads <script src="https://cdn.example.org/a.js"',
        'index.html: no anchor b.html#gone',
        'index.html: no page gone.html',
      ])
    } finally {
      await rm(site, { recursive: true })
    }
  })
})
