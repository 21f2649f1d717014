import { readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { expect, test } from '@jest/globals'

const ROOT = resolve(import.meta.dirname, '../..')
const PACKAGES = ['.', 'packages/tasks', 'packages/state', 'packages/repositories', 'packages/local-database']

/** The entry that phaselock's command line loads: what it exports has the same names in each package, and no user imports it. */
const LOADED = './cli'

/** The entries' declarations, by the name that a user imports from. */
function entries(): [string, string][] {
  return PACKAGES.flatMap((folder) => {
    const { name, exports } = JSON.parse(readFileSync(resolve(ROOT, folder, 'package.json'), 'utf8'))
    return Object.entries<{ types?: string }>(exports).flatMap(([entry, { types }]): [string, string][] =>
      types && entry !== LOADED ? [[`${name}${entry.slice(1)}`, resolve(ROOT, folder, types)]] : [],
    )
  })
}

const DECLARED =
  /export (?:declare )?(?:abstract )?(?:class|interface|type|const|function|enum|let|namespace) ([\w$]+)/g
const LISTED = /(import|export) (?:type )?\{([^}]*)\}(?: from '([^']+)')?/g
const WHOLE = /export (?:type )?\* from '(\.[^']+)'/g

/** The names that a declaration file exports, each with the place of its declaration. */
function namesIn(file: string, known = new Map<string, Map<string, string>>()): Map<string, string> {
  const before = known.get(file)
  if (before) return before
  const names = new Map<string, string>()
  known.set(file, names)
  const text = readFileSync(file, 'utf8').replace(/\/\*[\s\S]*?\*\//g, '')
  const placeOf = (name: string, from: string) =>
    from.startsWith('.') ? namesIn(resolve(dirname(file), from.replace(/\.js$/, '.d.ts')), known).get(name) : from
  for (const [, name] of text.matchAll(DECLARED)) names.set(name!, `${file}#${name}`)
  const imported = new Map<string, string>()
  for (const [, verb, list, from] of text.matchAll(LISTED)) {
    for (const one of list!.split(',').filter((part) => part.trim() !== '')) {
      const [name, as = name] = one
        .trim()
        .replace(/^type /, '')
        .split(' as ') as [string, string?]
      const place = from === undefined ? imported.get(name) : placeOf(name, from)
      ;(verb === 'import' ? imported : names).set(as!, place ?? `${file}#${name}`)
    }
  }
  for (const [, from] of text.matchAll(WHOLE))
    for (const [name, place] of namesIn(resolve(dirname(file), from!.replace(/\.js$/, '.d.ts')), known))
      names.set(name, place)
  return names
}

test('no public name stands for two things, over all entries of all packages', () => {
  const places = new Map<string, Map<string, string>>()
  for (const [entry, file] of entries())
    for (const [name, place] of namesIn(file))
      if (name !== 'default') places.set(name, (places.get(name) ?? new Map<string, string>()).set(place, entry))
  expect(places.size).toBeGreaterThan(350)
  const twice = [...places].filter(([, found]) => found.size > 1).map(([name, found]) => [name, ...found.values()])
  expect(twice).toEqual([])
})
