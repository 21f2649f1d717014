/**
 * Writes the folder `app` from which the image's packages are installed: the packed phaselock and phaselock-tasks with the optional packages that
 * they work with in a cluster, at the versions that package.json pins, and package-lock.json, so that what these need is pinned too.
 * Run it in the repository's root after packing both.
 */
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises'

/** Metrics; handlers in threads; the Kubernetes task kinds; storage; named locks outside MongoDB. */
const OPTIONAL = ['@aws-sdk/client-s3', '@kubernetes/client-node', 'ioredis', 'pg', 'piscina', 'prom-client']
const FILES = ['healthcheck.mjs', 'kubernetes-tasks.mjs']

const { version, devDependencies, overrides } = JSON.parse(await readFile('package.json', 'utf8'))
const packed = ['phaselock', 'phaselock-tasks'].map((name) => ({ name, file: `${name}-${version}.tgz` }))
const optional = Object.fromEntries(OPTIONAL.map((one) => [one, devDependencies[one]]))
const app = {
  name: 'phaselock-image',
  version,
  private: true,
  type: 'module',
  dependencies: { ...Object.fromEntries(packed.map(({ name, file }) => [name, `file:${file}`])), ...optional },
  overrides,
}

await mkdir('app')
await writeFile('app/package.json', `${JSON.stringify(app, null, 2)}\n`)
await copyFile('package-lock.json', 'app/package-lock.json')
for (const { file } of packed) await copyFile(file, `app/${file}`)
for (const file of FILES) await copyFile(`deploy/image/${file}`, `app/${file}`)
