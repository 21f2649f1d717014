// Before the package is packed: declarations that no entry leads to are removed from dist, so that nobody installs them.
// usage: node tools/package/drop-unreached.mjs [folder of the package]
import { globSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'

const folder = process.argv[2] ?? '.'
const { exports } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
const reached = new Set(Object.values(exports).flatMap(({ types }) => (types ? [join(types)] : [])))
for (const file of reached) {
  const code = readFileSync(join(folder, file), 'utf8').replace(/\/\*[\s\S]*?\*\//g, '')
  for (const [, name] of code.matchAll(/(?:from|import)\s*\(?\s*['"](\.[^'"]+)['"]/g))
    reached.add(join(dirname(file), name.replace(/(\.d)?\.[jt]s$/, '.d.ts')))
}
for (const file of globSync('dist/**/*.d.ts', { cwd: folder })) if (!reached.has(file)) rmSync(join(folder, file))
// Else the next build takes them for written.
rmSync(join(folder, 'dist/.tsbuildinfo'), { force: true })
