import { readdir, readFile, stat } from 'node:fs/promises'
import { basename, dirname, extname, join, normalize } from 'node:path'
import { entries, ROOT } from './entries.ts'

/** A page of the site: a Markdown file of the repository, or source code that one of them links to. */
export interface Page {
  /** From the repository's root. */
  readonly from: string
  /** From the site's root, always `.md`. */
  readonly to: string
  readonly text: string
}

export interface Site {
  readonly pages: readonly Page[]
  /** Files that pages show as they are, from the repository's root. */
  readonly pictures: readonly string[]
}

export interface SidebarGroup {
  readonly text: string
  readonly items: { readonly text: string; readonly link: string }[]
}

const START = ['README.md', 'docs/README.md', 'CONTRIBUTING.md']

/**
 * All that can be reached from the README and the index by relative links, at the paths that it has in the repository, as these
 * pages are read on a Git host too. A folder's README.md is its index.md; a source file, or a folder of them, is a page that shows it.
 */
export async function readSite(): Promise<Site> {
  const pages = new Map<string, Page>()
  const pictures = new Set<string>()
  const open = [...START]
  for (let from = open.shift(); from !== undefined; from = open.shift()) {
    if (pages.has(from)) continue
    if (extname(from) !== '.md') {
      pages.set(from, { from, to: pageOf(from), text: await shown(from) })
      continue
    }
    const found = await withLinks(from)
    for (const path of found.linked) if (!open.includes(path)) open.push(path)
    for (const path of found.pictures) pictures.add(path)
    pages.set(from, { from, to: pageOf(from), text: found.text })
  }
  return { pages: [...pages.values()], pictures: [...pictures] }
}

/** The groups of docs/README.md with the pages that it lists, then the API reference and the project's own pages. */
export async function readSidebar(): Promise<SidebarGroup[]> {
  const index = await readFile(join(ROOT, 'docs/README.md'), 'utf8')
  const groups = index.split(/^(?=\*\*)/m).flatMap((part) => {
    const title = /^\*\*(.+?)\*\*/.exec(part)
    const links = part.matchAll(/(?<=^- .*)\[([^\]]+)\]\(([^)#\s]+)\)/gm)
    return title
      ? [{ text: plain(title[1]!), items: [...links].map(([, text, to]) => item(text!, join('docs', to!))) }]
      : []
  })
  const api = (await entries()).map(({ name, page }) => ({ text: name, link: `/${page}` }))
  const project = [
    item('Benchmarks', 'bench/README.md'),
    item('Changelog', 'CHANGELOG.md'),
    item('Contributing', 'CONTRIBUTING.md'),
    item('Decisions', 'docs/decisions/README.md'),
  ]
  return [...groups, { text: 'API reference', items: api }, { text: 'Project', items: project }]
}

const plain = (text: string) => text.replaceAll('`', '')
const item = (text: string, from: string) => ({ text: plain(text), link: `/${pageOf(normalize(from))}` })

function pageOf(from: string): string {
  if (from.endsWith('.md')) return join(dirname(from), basename(from) === 'README.md' ? 'index.md' : basename(from))
  return `${from}.md`
}

/** The page with links that lead to pages of the site, and what they lead to. */
async function withLinks(from: string) {
  const linked = new Set<string>()
  const pictures = new Set<string>()
  const parts = (await readFile(join(ROOT, from), 'utf8')).split(/(^```[\s\S]*?^```|`[^`\n]*`)/m)
  const text: string[] = []
  for (const [at, part] of parts.entries()) {
    if (at % 2 === 1) text.push(part)
    else text.push(await replaceLinks(part))
  }
  return { text: text.join(''), linked, pictures }

  async function replaceLinks(part: string): Promise<string> {
    let replaced = ''
    let end = 0
    for (const { 0: link, 1: target, index } of part.matchAll(/\]\(([^)\s]+)\)/g)) {
      replaced += part.slice(end, index)
      end = index + link.length
      replaced += /^(?:[a-z]+:|#)/.test(target!) ? link : `](${await resolved(target!)})`
    }
    return replaced + part.slice(end)
  }

  async function resolved(target: string): Promise<string> {
    const [file = '', anchor] = target.split('#')
    let path = normalize(join(dirname(from), file)).replace(/\/$/, '')
    if (extname(path) === '.svg') {
      pictures.add(path)
      return `/${path}`
    }
    if ((await isFolder(path)) && (await readdir(join(ROOT, path))).includes('README.md'))
      path = join(path, 'README.md')
    linked.add(path)
    return `/${pageOf(path)}${anchor === undefined ? '' : `#${anchor}`}`
  }
}

const isFolder = async (path: string) => (await stat(join(ROOT, path))).isDirectory()

/** A source file, or those of a folder, as a page. */
async function shown(path: string): Promise<string> {
  const files = (await isFolder(path))
    ? (await readdir(join(ROOT, path))).sort().map((name) => join(path, name))
    : [path]
  const blocks = files.map(async (file) => {
    const heading = file === path ? '' : `## ${basename(file)}\n\n`
    return `${heading}\`\`\`${extname(file).slice(1)}\n${(await readFile(join(ROOT, file), 'utf8')).trimEnd()}\n\`\`\`\n`
  })
  return `# ${path}\n\n${(await Promise.all(blocks)).join('\n')}`
}
