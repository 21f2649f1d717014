import { spawn } from 'node:child_process'
import { expect, test } from '@jest/globals'
import { change } from '../../chaos/sync/files.ts'
import { compared } from '../../chaos/sync/points.ts'
import { judgeSync, type SyncResult } from '../../chaos/sync/verdict.ts'
import { installWordllama } from '../../tools/embeddings/wordllama.mjs'
import { installQdrant } from '../../tools/servers/qdrant.mjs'
import { ServerMissing } from '../../tools/servers/server-missing.mjs'
import { testServerUri, withDatabase } from '../support/database.js'
import { describeWith } from '../support/describe-with.js'

interface Run {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/** `npm run demo -- --sync`, on the run's server. */
function sync(args: readonly string[], more: NodeJS.ProcessEnv = {}): Promise<Run> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, MONGODB_URI: withDatabase(testServerUri(), 'unused'), ...more }
    const program = ['--disable-warning=ExperimentalWarning', 'chaos/demo.ts', '--sync', ...args]
    const child = spawn(process.execPath, program, { env })
    let [out, err] = ['', '']
    child.stdout.on('data', (text) => (out += text))
    child.stderr.on('data', (text) => (err += text))
    child.once('error', reject)
    child.once('close', (code) => resolve({ code, out, err }))
  })
}

const install = () => Promise.all([installQdrant(), installWordllama()])
const describeEngine = await describeWith("Qdrant's engine or no wordllama", install, ServerMissing)
describeEngine('npm run demo -- --sync', () => {
  test('three replicas, one killed, one paused past its lease: each chunk once, and a small change costs little', async () => {
    const run = await sync(['--json', '--files', '700'])
    expect({ code: run.code, said: run.code === 0 ? '' : run.out + run.err }).toEqual({ code: 0, said: '' })
    const result = JSON.parse(run.out) as SyncResult
    expect(result).toMatchObject({
      ...{ verdict: 'shown', off: [], notShown: [] },
      ...{ files: 700, duplicates: 0, missing: 0, stale: 0, touched: 25 },
    })
    expect(result.points).toBeGreaterThanOrEqual(700)
    expect(result.embedded).toBeGreaterThanOrEqual(20)
  }, 300_000)
})

test('without the engine it shows nothing, and says what to install', async () => {
  const { code, out } = await sync(['--json'], { PATH: '/nowhere', XDG_CACHE_HOME: '/nowhere' })
  expect(code).toBe(3)
  expect(JSON.parse(out)).toMatchObject({
    verdict: 'not shown',
    error: { name: 'WheelMissing', message: expect.stringContaining('apt-get install python3-pip') },
  })
})

test('a number of files that it cannot take is refused', async () => {
  expect(await sync(['--files', '20'])).toMatchObject({ code: 2, err: expect.stringContaining('from 600 to 2000') })
})

test('the comparison with the files finds what is missing, stale, and there twice', async () => {
  const size = { characters: 100, overlap: 20 }
  const place = { repository: 'r', hash: 'h', fence: 1, fromLine: 1, toLine: 1 }
  const blob = '45b983be36b73c0788dc9cbcb76cbb80fc7bb057' // of 'hi\n'
  const points = [
    { ...place, id: '1', path: 'a', text: 'hi\n', blob },
    { ...place, id: '2', path: 'a', text: 'hi\n', blob },
    { ...place, id: '3', path: 'gone', text: 'hi\n', blob },
    { ...place, id: '4', path: 'b', text: 'hi\n', blob: 'of another content' },
  ]
  const store = { scroll: async () => ({ points, next: undefined }) }
  const files = new Map(['a', 'b', 'c'].map((path) => [path, 'hi\n']))
  const found = await compared(store, { repository: 'r', collection: 'code' }, files, size)
  expect(found).toEqual({ points: 4, expected: 3, duplicates: 1, stale: 2, missing: 1 })
})

test('a change edits 20 files, deletes five and renames a folder', () => {
  const before = new Map(
    Array.from({ length: 400 }, (_, i) => [`${i < 60 ? 'folder' : `other${i % 40}`}/${i}.ts`, `${i}\n`] as const),
  )
  const { files, edited, deleted, renamed, pathOf } = change(before)
  expect({ edited, deleted, renamed, left: files.size }).toEqual({ edited: 20, deleted: 5, renamed: 60, left: 395 })
  expect(files.get(pathOf('folder/0.ts'))).toBe('0\n')
  expect(files.has('folder/0.ts')).toBe(false)
  expect([...before].filter(([path, text]) => (files.get(pathOf(path)) ?? text) !== text)).toHaveLength(20)
})

test('a figure that is off is off on a slow machine, too, and a fault that struck nothing shows nothing', () => {
  const right = {
    ...{ files: 450, points: 600, pointsAfter: 590, duplicates: 0, missing: 0, stale: 0, firstSeconds: 9 },
    ...{ touched: 25, renamed: 60, embedded: 60, secondSeconds: 1, queries: 10, found: 8, seconds: 20 },
  }
  const expected = { points: 600, pointsAfter: 590, touched: 25, renamed: 60, edited: 20 }
  expect(judgeSync(right, expected, [], 1)).toMatchObject({ verdict: 'shown' })
  for (const wrong of [{ points: 601 }, { stale: 1 }, { renamed: 59 }, { embedded: 61 }, { found: 7 }]) {
    const [figure] = Object.keys(wrong)
    const { verdict, off } = judgeSync({ ...right, ...wrong }, expected, [], 5)
    expect({ verdict, off }).toEqual({ verdict: 'off', off: [expect.stringMatching(`^${figure}: `)] })
  }
  expect(judgeSync(right, expected, ['a lost lease'], 1)).toMatchObject({ verdict: 'not shown' })
})
