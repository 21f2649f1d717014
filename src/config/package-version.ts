import { readFile } from 'node:fs/promises'

let version: Promise<string> | undefined

/** The version of this package. Rejects if the package was bundled, and lies beside no package.json of its own. */
export const packageVersion = (): Promise<string> => {
  version ??= read()
  return version
}

async function read(): Promise<string> {
  const text = await readFile(new URL('../../package.json', import.meta.url), 'utf8')
  return (JSON.parse(text) as { version: string }).version
}
