import { readdir, readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { expect, test } from '@jest/globals'

const root = resolve(import.meta.dirname, '../..')

/** By folder of src: the folders that it imports. */
async function imports(): Promise<Map<string, Set<string>>> {
  const found = new Map<string, Set<string>>()
  for (const one of await readdir(join(root, 'src'), { recursive: true, withFileTypes: true })) {
    const path = join(one.parentPath, one.name).slice(join(root, 'src').length + 1)
    const [folder, rest] = path.split('/')
    if (!one.isFile() || !rest) continue
    const to = found.get(folder!) ?? new Set()
    found.set(folder!, to)
    for (const [, name] of (await readFile(join(root, 'src', path), 'utf8')).matchAll(
      / from '(?:\.\.\/)+([\w-]+)\/index\.js'/g,
    )) {
      to.add(name!)
    }
  }
  for (const [folder, to] of found) for (const name of to) if (name === folder || !found.has(name)) to.delete(name)
  return found
}

/** What can be reached from a folder in one step or more. */
function reached(from: string, graph: ReadonlyMap<string, ReadonlySet<string>>, seen = new Set<string>()): Set<string> {
  for (const to of graph.get(from) ?? []) {
    if (seen.has(to)) continue
    seen.add(to)
    reached(to, graph, seen)
  }
  return seen
}

/** The arrows that are left when those are left out that longer ways say already. */
function arrows(graph: ReadonlyMap<string, ReadonlySet<string>>): string[] {
  const kept: string[] = []
  for (const [from, to] of graph) {
    const indirect = new Set([...to].flatMap((one) => [...reached(one, graph)]))
    for (const one of to) if (!indirect.has(one)) kept.push(`${from} --> ${one}`)
  }
  return kept.sort()
}

test('the picture in CONTRIBUTING shows the folders of src and what they import', async () => {
  const graph = await imports()
  expect([...graph.keys()].filter((folder) => reached(folder, graph).has(folder))).toEqual([])
  const text = await readFile(join(root, 'CONTRIBUTING.md'), 'utf8')
  const [, picture = ''] = /```mermaid\nflowchart TD\n([\s\S]*?)```/.exec(text) ?? []
  const drawn = picture.split('\n').map((line) => line.trim())
  expect(drawn.filter((line) => line.includes('-->')).sort()).toEqual(arrows(graph))
  const named = [...text.matchAll(/^ *src\/.*$/gm)].flatMap(([line]) => [...line.matchAll(/src\/([\w-]+)/g)])
  expect([...new Set(named.map(([, folder]) => folder))].sort()).toEqual([...graph.keys()].sort())
})
