// `npm run docs`: the documentation as a site, in tools/docs/dist/site. `--serve` shows it afterwards.
import { spawnSync } from 'node:child_process'
import { cp, mkdir, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { entries, ROOT } from './entries.ts'

const HERE = join(ROOT, 'tools/docs')
const PAGES = join(HERE, 'dist/pages')
const SITE = join(HERE, 'dist/site')

const { values } = parseArgs({ options: { serve: { type: 'boolean', default: false } } })

await install()
await rm(join(HERE, 'dist'), { recursive: true, force: true })
await reference()
await writePages()
run(join(HERE, 'node_modules/.bin/vitepress'), 'build', HERE)
const { problemsOf } = await import('./check-site.ts')
fail('the built site', await problemsOf(SITE))
console.log(`built: ${SITE}`)
if (values.serve) run(join(HERE, 'node_modules/.bin/vitepress'), 'preview', HERE, '--host', '127.0.0.1')

/** What only the site needs, when it isn't there or the lockfile is newer. */
async function install(): Promise<void> {
  const changed = async (path: string) => (await stat(join(HERE, path)).catch(() => undefined))?.mtimeMs ?? 0
  if ((await changed('node_modules/.package-lock.json')) >= (await changed('package-lock.json'))) return
  run('npm', 'ci', '--prefix', HERE, '--no-fund', '--no-audit')
}

async function writePages(): Promise<void> {
  const { readSite } = await import('./pages.ts')
  const { pages, pictures } = await readSite()
  for (const { to, text } of pages) await write(to, text)
  for (const path of pictures) await cp(join(ROOT, path), join(PAGES, 'public', path))
  const list = (await entries()).map(({ name, page }) => `- [\`${name}\`](/${page})`)
  await write('api/index.md', `# API reference\n\nWhat the package exports, by entry.\n\n${list.join('\n')}\n`)
}

async function reference(): Promise<void> {
  const { writeReference } = await import('./reference.ts')
  const { undocumented, withoutExample } = await writeReference(PAGES)
  fail('entries without an @example', withoutExample)
  fail('exported without a docstring', undocumented)
}

async function write(path: string, text: string): Promise<void> {
  await mkdir(dirname(join(PAGES, path)), { recursive: true })
  await writeFile(join(PAGES, path), text)
}

function run(command: string, ...args: string[]): void {
  const { status, error } = spawnSync(command, args, { stdio: 'inherit' })
  if (error) console.error(error.message)
  if (status !== 0) process.exit(status ?? 1)
}

function fail(what: string, problems: readonly string[]): void {
  if (problems.length === 0) return
  console.error(`${what}:\n${problems.map((problem) => `  ${problem}`).join('\n')}`)
  process.exit(1)
}
