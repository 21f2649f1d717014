import { readdir, readFile } from 'node:fs/promises'
import { dirname, join, normalize, relative } from 'node:path'
import { describe, expect, test } from '@jest/globals'

const ROOT = new URL('../../', import.meta.url).pathname

const pages = async () => [
  'README.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'bench/README.md',
  ...(await readdir(join(ROOT, 'docs'), { recursive: true }))
    .filter((name) => name.endsWith('.md'))
    .map((name) => join('docs', name))
    .sort(),
]

const read = (page: string) => readFile(join(ROOT, page), 'utf8')
const withoutCode = (text: string) =>
  text.replace(/^```[\s\S]*?^```/gm, '').replace(/`[^`\n]*`/g, (code) => code.replace(/[[\]]/g, ''))

/** Relative targets of links and pictures, as they stand there. */
const targets = (text: string) =>
  [...withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)].map(([, to]) => to!).filter((to) => !/^[a-z]+:/.test(to))

/** The anchors that GitHub makes of headings: lower case, no marks, spaces as dashes. */
const anchors = (text: string) =>
  new Set(
    [...withoutCode(text).matchAll(/^#+ (.+)$/gm)].map(([, heading]) =>
      heading!
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .trim()
        .replace(/ /g, '-'),
    ),
  )

async function isThere(path: string): Promise<boolean> {
  const inFolder = await readdir(join(ROOT, dirname(path))).catch((): string[] => [])
  return path === '.' || inFolder.includes(normalize(path).replace(/\/$/, '').split('/').at(-1)!)
}

describe('links of the documentation', () => {
  test('each leads to a file, and each anchor to a heading', async () => {
    const broken: string[] = []
    for (const page of await pages()) {
      for (const target of targets(await read(page))) {
        const [file = '', anchor] = target.split('#')
        const path = file === '' ? page : normalize(join(dirname(page), file))
        if (!(await isThere(path))) broken.push(`${page}: ${target}`)
        else if (anchor && path.endsWith('.md') && !anchors(await read(path)).has(anchor))
          broken.push(`${page}: ${target}`)
      }
    }
    expect(broken).toEqual([])
  })

  test('each page of docs is in the index, decisions in their own, and the README leads to the index', async () => {
    const linkedFrom = async (index: string) =>
      new Set(targets(await read(index)).map((to) => normalize(join(dirname(index), to.split('#')[0]!))))
    const index = await linkedFrom('docs/README.md')
    const decisions = await linkedFrom('docs/decisions/README.md')
    const unlinked = (await pages())
      .filter((page) => page.startsWith('docs/') && page !== 'docs/README.md')
      .filter(
        (page) =>
          !(relative('docs/decisions', page).startsWith('..') ? index : new Set([...index, ...decisions])).has(page),
      )
    expect(unlinked).toEqual([])
    expect([...(await linkedFrom('README.md'))].some((page) => /^docs\/(README\.md)?$/.test(page))).toBe(true)
  })
})
