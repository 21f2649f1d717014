import { readFile } from 'node:fs/promises'
import { describe, expect, test } from '@jest/globals'
import { BSON } from 'mongodb'

/** The benchmarks are plain JavaScript without types. */
const load = (file: string): Promise<any> => import(new URL(`../../bench/${file}`, import.meta.url).pathname)

describe('statistics', () => {
  test('a percentile is the smallest value that so many don’t exceed', async () => {
    const { percentile, median } = await load('statistics.mjs')
    const hundred = Array.from({ length: 100 }, (_, i) => 100 - i)
    expect([0.5, 0.95, 0.99, 1].map((share) => percentile(hundred, share))).toEqual([50, 95, 99, 100])
    expect(percentile([7], 0.5)).toBe(7)
    expect(percentile([3, 1, 2], 0.99)).toBe(3)
    expect(() => percentile([], 0.5)).toThrow(RangeError)
    expect([median([3, 1, 2]), median([4, 1, 2, 3])]).toEqual([2, 2.5])
  })

  test('a slope is the growth by least squares', async () => {
    const { slope } = await load('statistics.mjs')
    expect(slope([0, 1, 2, 3].map((x) => [x, 10 + 2 * x]))).toBeCloseTo(2)
    expect(slope([0, 1, 2, 3].map((x) => [x, 5]))).toBe(0)
    expect(slope([[1, 5]])).toBe(0)
  })
})

describe('targets', () => {
  test('each figure is judged by its direction; the worst by size; what is not taken is left out', async () => {
    const { judged } = await load('targets.mjs')
    const verdicts = (figures: object) =>
      judged(figures).map(({ figure, verdict }: { figure: string; verdict: string }) => `${figure} ${verdict}`)
    expect(verdicts({ stepsPerSecond: 18_000, doorbellP50Ms: 2.9, lostShare: 0.06, twoReplicas: 1.1 })).toEqual([
      'stepsPerSecond aim',
      'twoReplicas least',
      'lostShare missed',
      'doorbellP50Ms aim',
    ])
    expect(verdicts({ keysPerClaim: { 1000: 1, 100000: 1.3, worst: 1.3 }, heapSlopeMbPerMinute: null })).toEqual([
      'keysPerClaim missed',
    ])
  })
})

describe('arguments', () => {
  test('names, flags and numbers', async () => {
    const { readArguments } = await load('arguments.mjs')
    expect(readArguments(['steps', '--json', '--rounds', '2'])).toEqual({
      isReport: false,
      names: ['steps'],
      on: { replicaSet: false },
      json: true,
      quick: false,
      rounds: 2,
    })
    expect(readArguments(['memory', '--minutes', '0.5', '--quick'])).toMatchObject({ minutes: 0.5, quick: true })
    expect(readArguments(['report', 'idle', 'peers'])).toMatchObject({ isReport: true, names: ['idle', 'peers'] })
    expect(readArguments(['limits', 'fairness', '--json'])).toMatchObject({ names: ['limits', 'fairness'], json: true })
    expect(readArguments(['--help'])).toEqual({ help: true })
  })

  test.each([
    [[], 'expected the name of a benchmark, got none'],
    [['latency', '--rounds', '2'], 'latency takes no --rounds'],
    [['memory', '--minutes', '0'], "--minutes: expected a number above 0 to 9999999, got '0'"],
    [['report', 'stepz'], "got 'stepz'"],
    [['steps', 'nop'], "expected the name of a benchmark, got 'nop'"],
    [['steps', 'memory', '--minutes', '1'], 'steps takes no --minutes'],
    [['steps', 'report'], "got 'report'"],
  ])('%j is refused', async (args, problem) => {
    const { readArguments } = await load('arguments.mjs')
    expect(() => readArguments(args)).toThrow(problem)
  })
})

describe('the proxy that counts', () => {
  test('counts whole messages by their command, however they are cut', async () => {
    const { commandCounter } = await load('counting-proxy.mjs')
    const stream = Buffer.concat([{ hello: 1 }, { getMore: 1, collection: 'x' }, { hello: 1 }].map(message))
    const counts = new Map<string, number>()
    const count = commandCounter(counts)
    for (let at = 0; at < stream.length; at += 7) count(stream.subarray(at, at + 7))
    expect(Object.fromEntries(counts)).toEqual({ hello: 2, getMore: 1 })
  })
})

describe('what is published', () => {
  const results = {
    steps: { stepsPerSecond: 17_913, bareStepsPerSecond: 24_100 },
    recovery: { recoverySeconds: 30.1 },
    peers: {
      takenAt: '2026-01-31T10:00',
      machine: { cores: 2, cpu: 'a <cpu>', node: 'v24.1.0', engine: 'embedded 9' },
      recovery: 'null: not again within 65 s',
      peers: [
        { name: 'other', setting: 'defaults', stepsPerSecond: 100, pickupP50Ms: 1_000, recoverySeconds: null },
        { name: 'other', setting: 'best', stepsPerSecond: 22_000, pickupP50Ms: null, recoverySeconds: null },
        { name: 'phaselock', setting: 'defaults', stepsPerSecond: 18_000, pickupP50Ms: 4, recoverySeconds: null },
      ],
    },
  }

  test('the tables name each target and each peer', async () => {
    const { peersTable, targetsTable } = await load('publish/published.mjs')
    expect(targetsTable(results)).toContain('(`stepsPerSecond`) | 12,000 | 18,000 | 17,913 | reached |')
    expect(targetsTable(results)).toContain('| not taken |')
    expect(peersTable(results)).toContain('| other | best | 22,000 |')
    expect(peersTable(results)).toContain('| phaselock | defaults | 18,000 | - | 4 | - | 30.1 |')
    expect(peersTable({})).toBe('')
  })

  test('the figures of each server stand beside each other, and say where one was not taken', async () => {
    const { serversTable } = await load('publish/published.mjs')
    const table = serversTable({ 'embedded engine': results, mongod: { steps: { stepsPerSecond: 22_800 } } })
    expect(table).toContain('| figure | embedded engine | mongod |')
    expect(table).toContain('| `steps` | `stepsPerSecond` | 17,913 | 22,800 |')
    expect(table).toContain('| `steps` | `bareStepsPerSecond` | 24,100 | - |')
  })

  test('each target has its figure in the last full run', async () => {
    const { targetsTable } = await load('publish/published.mjs')
    const published = JSON.parse(await readFile(new URL('../../bench/results.json', import.meta.url), 'utf8'))
    const untaken = targetsTable(published)
      .split('\n')
      .filter((row: string) => row.includes('not taken'))
    // Until a full run has had it.
    const isOfLooking = (row: string) => /`(\w+CpuMs|pageByCauseP95Ms|besideReaders)`/.test(row)
    expect(untaken.filter((row: string) => published.looking || !isOfLooking(row))).toEqual([])
  })

  test('so have limits, fairness, operations and events', async () => {
    const { qualitiesTable } = await load('publish/published.mjs')
    const published = JSON.parse(await readFile(new URL('../../bench/results.json', import.meta.url), 'utf8'))
    const table = qualitiesTable(published)
    expect(table).not.toContain('not taken')
    expect(await readFile(new URL('../../bench/README.md', import.meta.url), 'utf8')).toContain(table)
    expect(qualitiesTable({})).toContain(
      '| `operations` | documents that an operation wakes in a second (`wakePerSecond`) | not taken |',
    )
  })

  test('the chart is one SVG with a bar for each figure, and says why one is missing', async () => {
    const { chartOf } = await load('publish/published.mjs')
    const { chart } = await load('publish/chart.mjs')
    const svg: string = chart(chartOf(results))
    expect(svg).toMatch(/^<svg xmlns="http:\/\/www.w3.org\/2000\/svg" viewBox="0 0 \d+ \d+"[\s\S]*<\/svg>\n$/)
    expect(svg).toContain('a &lt;cpu&gt;')
    expect(svg).toContain('prefers-color-scheme: dark')
    expect(svg).toContain('>22,000</text>')
    expect(svg).toContain('not within 65 s')
    expect(svg).not.toMatch(/NaN|undefined|Infinity/)
    // A panel's second line has 412 px: with 6 px a letter, which no letter of this size exceeds on average, it isn't cut.
    const published = JSON.parse(await readFile(new URL('../../bench/results.json', import.meta.url), 'utf8'))
    for (const { note } of chartOf(published).panels) expect(note.length).toBeLessThan(412 / 6)
    expect(svg.match(/<g/g)?.length).toBe(svg.match(/<\/g>/g)?.length)
    expect(chartOf({})).toBeUndefined()
  })

  test('a table is put between its markers, and nothing else of the page changes', async () => {
    const { between } = await load('publish/full-run.mjs')
    const page = 'a\n<!-- t -->\n\nold\n\n<!-- /t -->\nb\n'
    expect(between(page, 't', 'new')).toBe('a\n<!-- t -->\n\nnew\n\n<!-- /t -->\nb\n')
    expect(() => between(page, 'other', 'new')).toThrow('<!-- other -->')
  })
})

/** A command as it goes over the wire. */
function message(command: object): Buffer {
  const body = BSON.serialize(command)
  const bytes = Buffer.alloc(21 + body.length)
  bytes.writeInt32LE(bytes.length, 0)
  bytes.writeInt32LE(2013, 12)
  bytes.set(body, 21)
  return bytes
}
