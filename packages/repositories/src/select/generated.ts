import { glob } from './glob.js'

/** The attributes that say a file is generated: GitHub's, and GitLab's own. */
const NAMES = new Set(['linguist-generated', 'gitlab-generated'])

/** The lines of one file that are read. */
const MOST_LINES = 1_000

interface Rule {
  readonly matches: (path: string) => boolean
  /** Undefined: it takes back what was said before. */
  readonly generated: boolean | undefined
}

/** A `.gitattributes` file and the folder that it stands in (`''`: the root). */
export interface AttributesFile {
  readonly folder: string
  readonly text: string
}

/** The name of these files. */
export const ATTRIBUTES_FILE = '.gitattributes'

/**
 * The files that a repository's `.gitattributes` call generated, decided in the way of `git check-attr`: of all lines that match a path, the last one
 * of the deepest folder counts. Macros are not expanded.
 */
export class GeneratedFiles {
  private readonly folders = new Map<string, readonly Rule[]>()

  constructor(files: readonly AttributesFile[] = []) {
    for (const { folder, text } of files) {
      const rules = rulesOf(text)
      if (rules.length > 0) this.folders.set(folder, rules)
    }
  }

  has(path: string): boolean {
    if (this.folders.size === 0) return false
    for (let folder = parentOf(path); folder !== undefined; folder = parentOf(folder)) {
      const below = folder === '' ? path : path.slice(folder.length + 1)
      const rule = this.folders.get(folder)?.findLast(({ matches }) => matches(below))
      if (rule?.generated !== undefined) return rule.generated
    }
    return false
  }
}

/** The folder of a path; `''` is the root, which has none. */
function parentOf(path: string): string | undefined {
  if (path === '') return undefined
  return path.slice(0, Math.max(0, path.lastIndexOf('/')))
}

function rulesOf(text: string): Rule[] {
  const lines = text.split('\n', MOST_LINES)
  return lines.flatMap((line) => {
    const [, quoted, plain, attributes] = /^\s*(?:"((?:[^"\\]|\\.)*)"|([^\s"]\S*))\s+(.*)$/.exec(line.trimEnd()) ?? []
    const pattern = quoted ?? plain
    // git itself ignores negative patterns and comments here.
    if (pattern === undefined || pattern === '' || /^[!#]/.test(pattern) || pattern.startsWith('[attr]')) return []
    const said = (attributes ?? '').split(/\s+/).flatMap((attribute) => {
      const [, mark, name = '', value] = /^([-!]?)([^=]+)(?:=(.*))?$/.exec(attribute) ?? []
      if (!NAMES.has(name)) return []
      return [mark === '!' ? undefined : mark !== '-' && value !== 'false']
    })
    if (said.length === 0) return []
    return [{ matches: glob(pattern), generated: said.at(-1) }]
  })
}
