// Before the package is packed: its code is written again without comments (the declarations keep every docstring) and with little white space, and
// declarations that no entry leads to are removed from dist, so that nobody installs either.
// usage: node tools/package/slim.mjs [folder of the package]
import { execFileSync } from 'node:child_process'
import { globSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = process.argv[2] ?? '.'
const root = fileURLToPath(new URL('../../', import.meta.url))
const tsc = join(root, 'node_modules/.bin/tsc')
execFileSync(tsc, ['-p', join(root, 'tools/package'), '--outDir', resolve(folder, 'dist')], { stdio: 'inherit' })
const { exports } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
const reached = new Set(Object.values(exports).flatMap(({ types }) => (types ? [join(types)] : [])))
for (const file of reached) {
  const code = readFileSync(join(folder, file), 'utf8').replace(/\/\*[\s\S]*?\*\//g, '')
  for (const [, name] of code.matchAll(/(?:from|import)\s*\(?\s*['"](\.[^'"]+)['"]/g))
    reached.add(join(dirname(file), name.replace(/(\.d)?\.[jt]s$/, '.d.ts')))
}
for (const file of globSync('dist/**/*.d.ts', { cwd: folder })) if (!reached.has(file)) rmSync(join(folder, file))
const biome = join(root, 'node_modules/.bin/biome')
const compact = `--config-path=${join(root, 'tools/package/compact.json')}`
execFileSync(biome, ['format', '--write', compact, 'dist'], { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] })
// Else the next build takes them for written.
rmSync(join(folder, 'dist/.tsbuildinfo'), { force: true })
