/** A part of a pattern: matches any number of items, or one. */
type Part<Item> = 'any' | ((item: Item) => boolean)

/**
 * Matches items against parts in time of at most their product: when a later item doesn't fit, only the last `any` takes one more. Patterns come
 * from repositories, so none may make a replica compute for long, as a regular expression could.
 */
function matches<Item>(parts: readonly Part<Item>[], items: readonly Item[]): boolean {
  let part = 0
  let item = 0
  let retry: { part: number; item: number } | undefined
  while (item < items.length) {
    const next = parts[part]
    if (next === 'any') {
      retry = { part: ++part, item }
    } else if (next?.(items[item]!)) {
      part += 1
      item += 1
    } else if (retry) {
      retry.item += 1
      part = retry.part
      item = retry.item
    } else return false
  }
  return parts.slice(part).every((left) => left === 'any')
}

/**
 * A pattern of `.gitattributes`: without a slash it is matched with the name alone, else with the whole path. `*` and `?` stay in a name,
 * `**` between slashes is any number of folders, and at the end all that is below.
 * @example glob('src/**\/*.js')('src/a/b.js') // true
 */
export function glob(pattern: string): (path: string) => boolean {
  if (!pattern.includes('/')) {
    const name = nameParts(pattern)
    return (path) => matches(name, [...path.slice(path.lastIndexOf('/') + 1)])
  }
  const names = pattern.replace(/^\//, '').split('/')
  const parts = names.map((name): Part<string> => {
    if (name === '**') return 'any'
    const characters = nameParts(name)
    return (item) => matches(characters, [...item])
  })
  // Below a folder means at least one name more.
  if (names.at(-1) === '**') parts.push(() => true)
  return (path) => matches(parts, path.split('/'))
}

function nameParts(pattern: string): Part<string>[] {
  const tokens = pattern.match(/\*+|\[[!^]?\]?[^\]]*\]|\\.|./gsu) ?? []
  return tokens.map((token): Part<string> => {
    if (token.startsWith('*')) return 'any'
    if (token === '?') return () => true
    if (token.length > 2 && token.startsWith('[')) return characterClass(token)
    const character = token.length > 1 && token.startsWith('\\') ? token.slice(1) : token
    return (item) => item === character
  })
}

/** `[a-z_]`, `[!0-9]`; ranges go by code points. */
function characterClass(token: string): (item: string) => boolean {
  const isNegative = /^\[[!^]/.test(token)
  const characters = [...token.slice(isNegative ? 2 : 1, -1)]
  const ranges: [string, string][] = []
  for (let i = 0; i < characters.length; i += 1) {
    const isRange = characters[i + 1] === '-' && i + 2 < characters.length
    ranges.push([characters[i]!, isRange ? characters[i + 2]! : characters[i]!])
    if (isRange) i += 2
  }
  return (item) => ranges.some(([from, to]) => from <= item && item <= to) !== isNegative
}
