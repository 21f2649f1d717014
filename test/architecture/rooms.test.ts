import { globSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { expect, test } from '@jest/globals'

const root = resolve(import.meta.dirname, '../..')
const { ROOMS } = createRequire(import.meta.url)('../../tools/lint/layers.cjs') as {
  ROOMS: Readonly<Record<string, readonly (readonly string[])[]>>
}

/** Every import of one file by another below `folder`, types too. */
function importsBelow(folder: string): { readonly from: string; readonly to: string }[] {
  return globSync(`${folder}/**/*.ts`, { cwd: root }).flatMap((from) =>
    [...readFileSync(join(root, from), 'utf8').matchAll(/(?:from |import\()'(\.[^']+)\.js'/g)].map(([, path]) => ({
      from,
      to: `${join(dirname(from), path!)}.ts`,
    })),
  )
}

/** The room of `folder` that a file is in, or the file itself where it is loose; undefined outside and for an index. */
function roomOf(folder: string, file: string): string | undefined {
  if (!file.startsWith(folder + sep)) return undefined
  const [first, ...rest] = relative(folder, file).split(sep)
  return rest.length > 0 ? `${first}/` : first === 'index.ts' ? undefined : first
}

function isReached(
  from: string,
  wanted: string,
  graph: ReadonlyMap<string, ReadonlySet<string>>,
  seen = new Set<string>(),
) {
  for (const to of graph.get(from) ?? []) {
    if (to === wanted) return true
    if (seen.has(to)) continue
    seen.add(to)
    if (isReached(to, wanted, graph, seen)) return true
  }
  return false
}

test.each(['src', ...globSync('packages/*/src', { cwd: root }).sort()])(
  'no rooms of %s import each other in a circle',
  (top) => {
    const imports = importsBelow(top)
    const folders = new Set(
      imports.flatMap(({ from }) => from.split(sep).map((_, i, parts) => parts.slice(0, i + 1).join(sep))),
    )
    const circles = [...folders].flatMap((folder) => {
      const graph = new Map<string, Set<string>>()
      for (const { from, to } of imports) {
        const [one, other] = [roomOf(folder, from), roomOf(folder, to)]
        if (!one || !other || one === other) continue
        graph.set(one, (graph.get(one) ?? new Set()).add(other))
      }
      return [...graph.keys()].filter((room) => isReached(room, room, graph)).map((room) => `${folder}: ${room}`)
    })
    expect(imports.length).toBeGreaterThan(10)
    expect(circles).toEqual([])
  },
)

test('CONTRIBUTING shows the rooms of each folder from the top down, as the linter checks them', () => {
  const text = readFileSync(join(root, 'CONTRIBUTING.md'), 'utf8')
  const shown = [...text.matchAll(/^(src\/\S+): (.* > .*)$/gm)].map(([line]) => line)
  expect(shown).toEqual(
    Object.entries(ROOMS).map(([folder, lines]) => `${folder}: ${lines.map((line) => line.join(', ')).join(' > ')}`),
  )
})
