import { readdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { InstalledFolder, pack, run } from '../packages/installed-folder.js'

const root = resolve(import.meta.dirname, '../..')

describe('what npm publishes', () => {
  let files: string[]

  beforeAll(async () => {
    files = (await pack('.', '--dry-run')).files
  })

  test('is the built code, its types, the docs, what those link to, and nothing else', () => {
    const built = 'dist/.+[.](js|d[.]ts)|package[.]json|README[.]md|LICENSE|CHANGELOG[.]md'
    const linked = 'examples/(?!(.*/)?(dist|node_modules)/).+|bench/(.+[.]md|chart[.]svg|results.*[.]json)'
    const allowed = new RegExp(`^(${built}|docs/.+[.](md|svg)|${linked})$`)
    expect(files.filter((file) => !allowed.test(file))).toEqual([])
    expect(files).toEqual(expect.arrayContaining(['package.json', 'README.md', 'LICENSE', 'dist/index.js']))
  })

  test('has every file that package.json points to', async () => {
    const { bin, exports, types } = JSON.parse(await readFile(resolve(root, 'package.json'), 'utf8'))
    const targets = [
      types,
      ...Object.values(bin),
      ...Object.values(exports).flatMap((one) => Object.values(Object(one))),
    ]
    const paths = targets.filter((one): one is string => typeof one === 'string' && one.startsWith('./dist'))
    expect(paths.length).toBeGreaterThan(4)
    for (const path of paths) expect(files).toContain(path.replace('./', ''))
  })

  test('has every declaration that its entries lead to, and none of those needs the validator', async () => {
    const { exports } = JSON.parse(await readFile(resolve(root, 'package.json'), 'utf8'))
    const entries = Object.values<{ types?: string }>(exports).flatMap(({ types }) => types?.replace('./', '') ?? [])
    const reached = new Set(entries)
    const imported = new Set<string>()
    for (const file of reached) {
      const code = (await readFile(join(root, file), 'utf8')).replace(/\/\*[\s\S]*?\*\//g, '')
      for (const [, name = ''] of code.matchAll(/(?:from|import)\s*\(?\s*['"]([^'"]+)['"]/g)) {
        if (name.startsWith('.')) reached.add(join(dirname(file), name.replace(/(\.d)?\.[jt]s$/, '.d.ts')))
        else imported.add(name)
      }
    }
    expect(reached.size).toBeGreaterThan(100)
    expect([...reached].filter((file) => !files.includes(file))).toEqual([])
    expect([...imported]).toContain('mongodb')
    expect([...imported]).not.toContain('valibot')
  })

  test('depends on no package of the workspaces', async () => {
    const { dependencies, optionalDependencies } = JSON.parse(await readFile(resolve(root, 'package.json'), 'utf8'))
    const ours = /^(node-linux|@0q|@nestjs|mongodb-memory|phaselock)/
    expect(Object.keys(dependencies).filter((name) => ours.test(name))).toEqual([])
    expect(optionalDependencies).toBeUndefined()
  })

  test('fetches and starts no database: that is in the other package', async () => {
    const built = files.filter((file) => file.endsWith('.js'))
    const texts = await Promise.all(
      built.map(async (file) => [file, await readFile(join(root, file), 'utf8')] as const),
    )
    expect(
      texts.filter(([, text]) => /apt-get|dpkg|--dbpath|@0q\/embedded-mongodb'/.test(text)).map(([file]) => file),
    ).toEqual([])
  })

  test('the installed command starts with a shebang', async () => {
    expect(await readFile(resolve(root, 'dist/cli/main.js'), 'utf8')).toMatch(/^#!\/usr\/bin\/env node\n/)
  })
})

describe('phaselock-local-database', () => {
  test('is the built code, its types and nothing else', async () => {
    const { files } = await pack('packages/local-database', '--dry-run')
    const allowed = /^(dist\/.+\.(js|d\.ts)|package\.json|README\.md|LICENSE)$/
    expect(files.filter((file) => !allowed.test(file))).toEqual([])
    expect(files).toEqual(
      expect.arrayContaining(['LICENSE', 'dist/index.js', 'dist/engine/keeper.js', 'dist/engine/embedded-server.js']),
    )
  })

  test('is of the same version as phaselock, which takes it', async () => {
    const [ours, its] = await Promise.all(
      ['package.json', 'packages/local-database/package.json'].map(async (path) =>
        JSON.parse(await readFile(join(root, path), 'utf8')),
      ),
    )
    expect([its.version, ours.peerDependencies[its.name]]).toEqual([ours.version, `^${ours.version}`])
  })
})

describe('phaselock-tasks', () => {
  test('is the built code, its types and nothing else', async () => {
    const { files } = await pack('packages/tasks', '--dry-run')
    const allowed = /^(dist\/.+\.(js|d\.ts)|package\.json|README\.md|LICENSE)$/
    expect(files.filter((file) => !allowed.test(file))).toEqual([])
    expect(files).toEqual(expect.arrayContaining(['LICENSE', 'dist/index.js', 'dist/index.d.ts']))
  })

  test('is of the same version as phaselock, which it takes as a peer; phaselock itself needs no AWS', async () => {
    const [ours, its] = await Promise.all(
      ['package.json', 'packages/tasks/package.json'].map(async (path) =>
        JSON.parse(await readFile(join(root, path), 'utf8')),
      ),
    )
    expect([its.version, its.peerDependencies.phaselock]).toEqual([ours.version, `^${ours.version}`])
    const peers = Object.keys({ ...ours.dependencies, ...ours.peerDependencies })
    expect(peers.filter((name) => /^@aws-sdk|^phaselock-tasks/.test(name))).toEqual([])
  })
})

describe('phaselock-state', () => {
  test('is the built code, its types and nothing else', async () => {
    const { files } = await pack('packages/state', '--dry-run')
    const allowed = /^(dist\/.+\.(js|d\.ts)|package\.json|README\.md|LICENSE)$/
    expect(files.filter((file) => !allowed.test(file))).toEqual([])
    expect(files).toEqual(expect.arrayContaining(['LICENSE', 'README.md', 'dist/index.js', 'dist/index.d.ts']))
  })

  test('is of the same version as phaselock, which it takes as a peer, and depends on nothing else', async () => {
    const [ours, its] = await Promise.all(
      ['package.json', 'packages/state/package.json'].map(async (path) =>
        JSON.parse(await readFile(join(root, path), 'utf8')),
      ),
    )
    expect([its.version, its.peerDependencies.phaselock]).toEqual([ours.version, `^${ours.version}`])
    expect(its.dependencies).toBeUndefined()
    const { peerDependencies: peers, peerDependenciesMeta: optional } = its
    expect(Object.keys(peers).filter((name) => !optional[name]?.optional)).toEqual(['mongodb', 'phaselock'])
  })
})

describe('phaselock-repositories', () => {
  test('is the built code, its types and nothing else', async () => {
    const { files } = await pack('packages/repositories', '--dry-run')
    const allowed = /^(dist\/.+\.(js|d\.ts)|package\.json|README\.md|LICENSE)$/
    expect(files.filter((file) => !allowed.test(file))).toEqual([])
    expect(files).toEqual(expect.arrayContaining(['LICENSE', 'README.md', 'dist/index.js', 'dist/cli/index.js']))
  })

  test('is of the same version as phaselock and phaselock-state, and depends on ignore alone', async () => {
    const [ours, its] = await Promise.all(
      ['package.json', 'packages/repositories/package.json'].map(async (path) =>
        JSON.parse(await readFile(join(root, path), 'utf8')),
      ),
    )
    const { phaselock, 'phaselock-state': state } = its.peerDependencies
    expect([its.version, phaselock, state]).toEqual([ours.version, `^${ours.version}`, `^${ours.version}`])
    expect(Object.keys(its.dependencies)).toEqual(['ignore'])
    expect(Object.keys(its.peerDependenciesMeta)).toEqual(['@nestjs/common', 'phaselock-state'])
  })
})

describe('installed in an empty folder', () => {
  let installed: InstalledFolder
  let folder: string
  const install = (name: string, from: string) => installed.install(name, from)

  const phaselock = async (...args: string[]) => {
    const { PATH, HOME, XDG_CACHE_HOME } = process.env
    const main = 'node_modules/phaselock/dist/cli/main.js'
    const env = { PATH, HOME, XDG_CACHE_HOME }
    return run(process.execPath, [main, ...args], { cwd: folder, env }).catch(
      (error) => error as { stdout: string; stderr: string },
    )
  }

  beforeAll(async () => {
    installed = await InstalledFolder.make()
    folder = installed.path
    await install('phaselock', '.')
  })
  afterAll(() => installed.remove())

  test('phaselock alone says that MONGODB_URI is missing, and how to get a local database', async () => {
    const { stderr } = await phaselock('add', 'api-gateway', '{"_id":"shop"}')
    expect(stderr).toContain('expected MONGODB_URI to name a MongoDB server, but it is not set')
    expect(stderr).toContain('npm install --save-dev phaselock-local-database')
  })

  test('phaselock-tasks works with the phaselock beside it, of which there is one copy', async () => {
    await install('phaselock-tasks', 'packages/tasks')
    const program = `
      import { BoundLifecycle } from 'phaselock'
      import { apiGatewayLifecycles } from 'phaselock/tasks'
      import { Cluster, singleRegion } from 'phaselock/kubernetes'
      import { bucketLifecycle, instanceLifecycles, kubernetesJobLifecycles } from 'phaselock-tasks'
      import { MongoClient } from 'mongodb'
      const db = new MongoClient('mongodb://127.0.0.1:1').db('any')
      const regions = singleRegion('eu', Cluster.of({ name: 'eu', kubeconfig: 'default' }), { namespace: 'any', gateway: { domain: 'eu.example', tls: { enabled: false } } })
      const all = [
        ...apiGatewayLifecycles({ db, regions, instances: instanceLifecycles }).all,
        ...kubernetesJobLifecycles({ db, regions }).all,
        bucketLifecycle({ db }),
      ]
      console.log(all.filter((one) => one instanceof BoundLifecycle).map(({ name }) => name).join())`
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { cwd: folder })
    expect(stdout).toBe('api-gateway,runtime-domain,gateway-database,instance,kubernetes-job,bucket\n')
  })

  test('phaselock-state works with the phaselock beside it, and loads neither ioredis nor Nest', async () => {
    await install('phaselock-state', 'packages/state')
    const program = `
      import { registerHooks } from 'node:module'
      registerHooks({ resolve: (name, context, next) => {
        if (/^(ioredis|@nestjs|csv-parse|read-excel-file)/.test(name)) throw new Error(name + ' is loaded by ' + context.parentURL)
        return next(name, context)
      } })
      const { SharedStore, StoreUnavailable } = await import('phaselock-state')
      const values = new SharedStore({ env: {} }).of('scenario', { ttl: '24h' })
      await values.set('s1', { at: new Date(0) })
      console.log(JSON.stringify(await values.get('s1')), await values.getOrLoad('s2', () => 7), StoreUnavailable.name)`
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { cwd: folder })
    expect(stdout).toBe('{"at":"1970-01-01T00:00:00.000Z"} 7 StoreUnavailable\n')
  })

  test('phaselock-repositories works with the phaselock beside it, and loads no driver, nor phaselock-state', async () => {
    await install('phaselock-state', 'packages/state')
    await install('phaselock-repositories', 'packages/repositories')
    const program = `
      import { registerHooks } from 'node:module'
      registerHooks({ resolve: (name, context, next) => {
        if (/^(pg|@qdrant|openai|ioredis|@nestjs|phaselock-state)\\b/.test(name)) throw new Error(name + ' is loaded by ' + context.parentURL)
        return next(name, context)
      } })
      const { BoundLifecycle } = await import('phaselock')
      const { MongoClient } = await import('mongodb')
      const { embeddings, memory, repositories } = await import('phaselock-repositories')
      const { check, commands } = await import('phaselock-repositories/cli')
      const embedder = { model: 'any', dimensions: 1, embed: async (texts) => texts.map((text) => [text.length]) }
      const db = new MongoClient('mongodb://127.0.0.1:1').db('any')
      const { lifecycles } = repositories({ db, store: memory(), embeddings: embeddings(embedder) })
      console.log(lifecycles.filter((one) => one instanceof BoundLifecycle).map(({ name }) => name).join(), typeof check, Object.keys(commands).join())`
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { cwd: folder })
    expect(stdout).toMatch(/^repository,repository-sync(,[a-z]+)* function repositories\n$/)
  })

  test('with phaselock-local-database beside it, it works on a database of the folder', async () => {
    await install('phaselock-local-database', 'packages/local-database')
    const gateways =
      "import { apiGatewayLifecycles } from 'phaselock/tasks'; export default ({ db }) => apiGatewayLifecycles({ db }).all"
    await writeFile(join(folder, 'gateways.mjs'), gateways)
    const added = await phaselock('add', 'api-gateway', '{"_id":"shop"}', '--lifecycles', './gateways.mjs')
    expect(added.stdout).toContain('shop')
    expect(await readdir(folder)).toContain('.phaselock')
  })
})
