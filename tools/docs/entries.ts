import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

export const ROOT = new URL('../../', import.meta.url).pathname

/** An entry of the package, as its users import it. */
export interface Entry {
  /** `phaselock/locks/nest` */
  readonly name: string
  /** Its source, from the repository's root: `src/nest/locks/index.ts`. */
  readonly source: string
  /** Its page, from the site's root: `api/phaselock/locks/nest.md`. */
  readonly page: string
}

/** Those of package.json's `exports` that have types. */
export async function entries(): Promise<Entry[]> {
  const { exports } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as {
    exports: Record<string, string | { types: string }>
  }
  return Object.entries(exports).flatMap(([path, target]) => {
    if (typeof target === 'string') return []
    const name = `phaselock${path.slice(1)}`
    const source = target.types.replace('./dist/', 'src/').replace(/\.d\.ts$/, '.ts')
    return [{ name, source, page: `api/${name}.md` }]
  })
}
