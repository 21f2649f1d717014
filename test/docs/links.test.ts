import { readdir, readFile } from 'node:fs/promises'
import { dirname, join, matchesGlob, normalize, relative } from 'node:path'
import { describe, expect, test } from '@jest/globals'
import { anchorOf } from '../../tools/docs/anchors.ts'

const ROOT = new URL('../../', import.meta.url).pathname

const pagesIn = async (folder: string) =>
  (await readdir(join(ROOT, folder), { recursive: true }))
    .filter((name) => name.endsWith('.md') && !name.includes('node_modules'))
    .map((name) => join(folder, name))
    .sort()

/** Those that are in the package, with what else is in it, beside what is built. */
const packed = {
  pages: async () => [
    'README.md',
    'CHANGELOG.md',
    'bench/README.md',
    'bench/peers/README.md',
    ...(await pagesIn('docs')).filter((page) => !page.startsWith('docs/decisions/')),
    ...(await pagesIn('examples')),
  ],
  /** As package.json's `files` has them; npm adds the first two. */
  async has(path: string) {
    const { files } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { files: string[] }
    const isIn = (pattern: string) => matchesGlob(path, pattern) || path.startsWith(`${pattern}/`)
    const [left = [], taken = []] = [
      files.filter((one) => one.startsWith('!')),
      files.filter((one) => !one.startsWith('!')),
    ]
    return ['README.md', 'LICENSE', ...taken].some(isIn) && !left.some((one) => isIn(one.slice(1)))
  },
}

const pages = async () => [
  ...(await packed.pages()),
  ...(await pagesIn('docs/decisions')),
  ...(await pagesIn('deploy')),
  'CONTRIBUTING.md',
  'AGENTS.md',
]

const read = (page: string) => readFile(join(ROOT, page), 'utf8')
const withoutCode = (text: string) =>
  text.replace(/^```[\s\S]*?^```/gm, '').replace(/`[^`\n]*`/g, (code) => code.replace(/[[\]]/g, ''))

/** Relative targets of links and pictures, as they stand there. */
const targets = (text: string) =>
  [...withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)].map(([, to]) => to!).filter((to) => !/^[a-z]+:/.test(to))

const anchors = (text: string) =>
  new Set([...withoutCode(text).matchAll(/^#+ (.+)$/gm)].map(([, heading]) => anchorOf(heading!)))

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

  test('those of the package stay in the package: what is only in the repository is named by its path, and is there', async () => {
    const [leaving, missing]: [string[], string[]] = [[], []]
    for (const page of await packed.pages()) {
      const text = await read(page)
      for (const target of targets(text)) {
        const file = target.split('#')[0]!
        const path = file === '' ? page : normalize(join(dirname(page), file)).replace(/\/$/, '')
        if (!(await packed.has(path))) leaving.push(`${page}: ${target}`)
      }
      const named = text
        .replace(/^```[\s\S]*?^```/gm, '')
        .matchAll(/`((?:src|test|packages|deploy|docs\/decisions)\/[\w./-]+)`/g)
      for (const [, path] of named) if (!(await isThere(path!))) missing.push(`${page}: ${path}`)
    }
    expect({ leaving, missing }).toEqual({ leaving: [], missing: [] })
  })

  test('each page of docs is in the index, decisions in their own, and the README leads to the index', async () => {
    const linkedFrom = async (index: string) =>
      new Set(targets(await read(index)).map((to) => normalize(join(dirname(index), to.split('#')[0]!))))
    const index = await linkedFrom('docs/README.md')
    const decisions = [...(await linkedFrom('docs/decisions/README.md')), ...(await linkedFrom('CONTRIBUTING.md'))]
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
