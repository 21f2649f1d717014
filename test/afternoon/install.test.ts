import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals'
import { AppFolder, ROOT } from './app-folder.js'

jest.setTimeout(300_000)

/** What an app that works, without Nest and metrics, may take: all files, mongodb and bson have half of it. */
const MOST_PACKAGES = 16
const MOST_BYTES = 13_000_000
/** What `du` shows: each file takes whole blocks of a disk. */
const MOST_ON_DISK = 17_000_000
const BLOCK = 4_096

async function sizesOf(folder: string): Promise<number[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries.filter((one) => one.isFile()).map((one) => stat(join(one.parentPath, one.name)))
  return (await Promise.all(files)).map(({ size }) => size)
}

describe('npm install phaselock', () => {
  let folder: AppFolder
  beforeAll(async () => {
    folder = await AppFolder.make([])
  })
  afterAll(() => folder?.remove())

  test(`brings ${MOST_PACKAGES} packages and ${MOST_BYTES / 1e6} MB at most`, async () => {
    const { dependencies } = JSON.parse((await folder.run('npm', 'ls', '--all', '--json')).out)
    const found = new Set<string>()
    const walk = (all: Record<string, { version?: string; dependencies?: object }> = {}) => {
      for (const [name, one] of Object.entries(all)) {
        if (one.version === undefined || name === 'phaselock-local-database') continue // an optional one that isn't there
        found.add(name)
        walk(one.dependencies as never)
      }
    }
    walk({ phaselock: dependencies.phaselock })
    expect(found.size).toBeLessThanOrEqual(MOST_PACKAGES)
    const sizes = (await Promise.all([...found].map((name) => sizesOf(join(folder.path, 'node_modules', name))))).flat()
    const sum = (of: readonly number[]) => of.reduce((before, one) => before + one, 0)
    expect(sum(sizes)).toBeLessThanOrEqual(MOST_BYTES)
    expect(sum(sizes.map((size) => Math.ceil(size / BLOCK) * BLOCK))).toBeLessThanOrEqual(MOST_ON_DISK)
  })

  test('the README opens with a program of 25 lines at most, which runs as it stands', async () => {
    const [, program = ''] = /```js\n(\/\/ app\.mjs[\s\S]*?)```/.exec(await readFile(join(ROOT, 'README.md'), 'utf8'))!
    expect(program.trim().split('\n').length).toBeLessThanOrEqual(25)
    await folder.write('app.mjs', program)
    // As a beginner does: what it prints is pasted in another terminal, and Ctrl-C ends it.
    const { code, out, err } = await folder.run(
      ...([
        'sh',
        '-c',
        `node app.mjs >printed & app=$!
        while kill -0 $app && ! grep -q 'npx phaselock' printed; do sleep 0.1; done
        pasted=$(grep 'npx phaselock' printed)
        for try in 1 2 3 4 5 6 7 8 9 10; do
          if sh -c "$pasted" >shown && grep -q Packing shown; then break; fi
          sleep 0.5
        done
        cat shown; npx phaselock list order; npx phaselock add order
        kill -INT $app; wait $app`,
      ] as const),
    )
    expect({ code, err }).toEqual({ code: 0, err: expect.not.stringContaining('phaselock:') })
    expect(out).toMatch(/^order [0-9a-f]{24}: Packing\nSleeps, due .*, waiting for 'nobody has packed it'/)
    expect(out).toMatch(/^[0-9a-f]{24} +Packing +- +sleeping, .* waits for nobody has packed it/m)
    expect(out).toMatch(/^order [0-9a-f]{24} added in Paying/m)
  })

  test('works from CommonJS, by require', async () => {
    await folder.write(
      'app.cjs',
      `const { lifecycleOf, Replica } = require('phaselock')
       const { connectDatabase } = require('phaselock/database')
       const order = lifecycleOf().define({
         name: 'order',
         collection: 'Order',
         phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
       })
       const orders = order.handle({ Creating: async (doc, step) => step.moveTo('Created') })
       async function main() {
         const connection = await connectDatabase()
         const replica = new Replica({ db: connection.db, lifecycles: [orders] })
         await orders.insert({ _id: 'o1' })
         await replica.runOnce()
         console.log((await orders.find('o1')).phase)
         await replica.stop()
         await connection.close()
       }
       main()`,
    )
    expect(await folder.run('node', 'app.cjs')).toMatchObject({ code: 0, out: 'Created\n' })
  })

  test("an entry whose packages aren't there names one, and the guide says what to install", async () => {
    const guide = await readFile(join(ROOT, 'docs/guides/nest.md'), 'utf8')
    const toInstall = guide.match(/(?<=^\| Node's own \|.*`npm install )[^`]+/gm)!.flatMap((line) => line.split(' '))
    for (const entry of ['nest', 'locks/nest', 'schedules/nest', 'testing/nest', 'telemetry']) {
      const { code, err } = await folder.run('node', '--eval', `import('phaselock/${entry}')`)
      expect(code).toBe(1)
      const [, missing] = /Cannot find package '(.+?)' imported from .+phaselock/.exec(err) ?? []
      expect(toInstall).toContain(missing)
    }
  })
})
