import { readdir, readFile } from 'node:fs/promises'
import { dirname, join, normalize } from 'node:path'

/** What a browser would load by itself; links that a reader may follow aren't. */
const LOADS = [
  /<(?:script|img|iframe|source|video|audio)\b[^>]*\ssrc="(?:https?:)?\/\/[^"]*"/g,
  /<link\b[^>]*\shref="(?:https?:)?\/\/[^"]*"/g,
  /(?:url\(|@import\s+)["']?(?:https?:)?\/\/[^)\s"';]*/g,
]
const CODE_LOADS = [/(?:\bimport\(?|\bfrom|\bfetch\(|importScripts\()\s*["'`](?:https?:)?\/\/[^"'`]*/g]

/** What is wrong with the built site: links to nowhere, anchors that aren't there, and anything loaded from another host. */
export async function problemsOf(site: string): Promise<string[]> {
  const names = (await readdir(site, { recursive: true })).filter((name) => /\.(?:html|css|js|svg)$/.test(name))
  const files = new Map(
    await Promise.all(names.map(async (name) => [name, await readFile(join(site, name), 'utf8')] as const)),
  )
  const problems: string[] = []
  for (const [name, text] of files) {
    for (const pattern of name.endsWith('.js') ? CODE_LOADS : LOADS)
      for (const [load] of text.matchAll(pattern)) problems.push(`${name} loads ${load}`)
    if (!name.endsWith('.html')) continue
    for (const [, target] of text.matchAll(/<a\b[^>]*\shref="([^"]*)"/g)) {
      if (/^[a-z]+:/.test(target!)) continue
      const [path = '', anchor] = target!.split('#')
      const page = path === '' ? name : fileOf(path.startsWith('/') ? path.slice(1) : join(dirname(name), path))
      const linked = files.get(page)
      if (linked === undefined) problems.push(`${name}: no page ${target}`)
      else if (anchor && !linked.includes(`id="${decodeURIComponent(anchor)}"`))
        problems.push(`${name}: no anchor ${target}`)
    }
  }
  return [...new Set(problems)].sort()
}

const fileOf = (path: string) => (path === '' || path.endsWith('/') ? `${path}index.html` : normalize(path))
