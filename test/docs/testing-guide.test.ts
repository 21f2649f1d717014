/** The code of docs/guides/testing.md as it stands there; the last tests compare. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { lifecycleOf } from 'phaselock'
import { backDate, LifecycleKit, race } from 'phaselock/testing'
import { testServerUri } from '../support/database.js'
import { codeBlocks, readPage } from './page.js'

// A user of the kit has a server of his own in this variable, or none at all.
process.env['MONGODB_URI'] = testServerUri()

interface Bucket {
  _id: string
  state?: 'Running' | 'Deleted'
}

interface Storage {
  ensureBucket(name: string): Promise<void>
  isReady(name: string): Promise<boolean>
  charge(name: string, fence: number): Promise<void>
}

const bucket = lifecycleOf<Bucket>().define({
  name: 'bucket',
  collection: 'Bucket',
  phases: {
    Creating: { next: ['Created'], deadline: { after: '10m', moveTo: 'Deleting', setState: 'Deleted' } },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
})

const bucketsWith = (storage: Storage) =>
  bucket.handle({
    async Creating(doc, step) {
      if (step.name === undefined) {
        await storage.ensureBucket(doc._id)
        return step.again({ step: 'wait for it' })
      }
      if (!(await storage.isReady(doc._id))) return step.wait('the bucket is not ready')
      await storage.charge(doc._id, step.fence)
      return step.moveTo('Created')
    },
    Deleting: async (_doc, step) => step.moveTo('Deleted'),
  })

let kit: LifecycleKit
let ready: boolean
let calls: string[]

beforeEach(async () => {
  ready = false
  calls = []
  const storage: Storage = {
    ensureBucket: async (name) => void calls.push(`ensure ${name}`),
    isReady: async () => ready,
    charge: async (name) => void calls.push(`charge ${name}`),
  }
  kit = await LifecycleKit.open({ lifecycles: [bucketsWith(storage)] })
  await kit.insert('bucket', { _id: 'b1', phase: 'Creating', state: 'Running' })
})

afterEach(() => kit.close())

test('waits until the bucket is there', async () => {
  await kit.untilIdle()
  await kit.expectPhase('bucket', 'b1', 'Creating')
  await kit.expectHistory('bucket', 'b1', [
    { outcome: 'again' },
    { outcome: 'wait', step: 'wait for it', reason: 'the bucket is not ready' },
  ])

  ready = true
  await kit.advance('1m')
  await kit.untilIdle()
  await kit.expectPhase('bucket', 'b1', 'Created')
  expect(calls).toEqual(['ensure b1', 'charge b1'])
})

test('gives up after ten minutes', async () => {
  await kit.untilIdle()
  await kit.advance('10m')
  await kit.untilIdle()
  expect(await kit.find('bucket', 'b1')).toBeNull()
})

test('a crash repeats the step that it interrupted, and no earlier one', async () => {
  ready = true
  const crashed = kit.crash('wait for it')
  await kit.untilIdle()
  await crashed
  await kit.advance('31s')
  await kit.untilIdle()
  await kit.expectPhase('bucket', 'b1', 'Created')
  expect(calls).toEqual(['ensure b1', 'charge b1', 'charge b1'])
})

test('what happens twice when a replica dies or stands still', async () => {
  const report = await race({
    outside: () => ({
      ensureBucket: async (_name: string) => {},
      isReady: async (_name: string) => true,
      charge: async (_name: string, _fence: number) => {},
    }),
    lifecycle: bucketsWith,
    document: { _id: 'b1', phase: 'Creating', state: 'Running' },
    effectKey: (method, [name]) => (method === 'charge' ? `charge ${name}` : undefined),
  })
  expect(report.unfinished).toEqual([])
  expect(report.twice.map(({ fault, at }) => `${fault} ${at}`)).toEqual([
    'crash after charge (call 3)',
    'pause before isReady (call 2)',
    'pause after isReady (call 2)',
    'pause before charge (call 3)',
    'pause after charge (call 3)',
  ])
}, 120_000)

test('a storage that charges a bucket once stands all of them', async () => {
  const charged: string[][] = []
  const report = await race({
    outside: () => {
      const paid: string[] = []
      charged.push(paid)
      return {
        ensureBucket: async (_name: string) => {},
        isReady: async (_name: string) => true,
        charge: async (name: string, _fence: number) => void (paid.includes(name) || paid.push(name)),
      }
    },
    lifecycle: bucketsWith,
    document: { _id: 'b1', phase: 'Creating', state: 'Running' },
    effectKey: () => undefined,
  })
  expect(report.unfinished).toEqual([])
  expect(charged).toEqual(Array.from({ length: report.runs }, () => ['b1']))
}, 120_000)

test('backDate lets time pass for some documents of any collection', async () => {
  await kit.untilIdle()
  ready = true
  expect(await backDate(kit.db.collection('Bucket'), 60_000, { filter: { state: 'Running' } })).toBe(1)
  await kit.untilIdle()
  await kit.expectPhase('bucket', 'b1', 'Created')
})

const blocks = async () =>
  codeBlocks(await readPage('docs/guides/testing.md')).filter(({ language }) => language === 'ts')

test('the page shows the code of this file', async () => {
  const squeezed = (text: string) => text.replace(/\s+/g, ' ').trim()
  const here = squeezed(await readPage('test/docs/testing-guide.test.ts'))
  for (const { code, heading } of await blocks()) {
    if (heading === 'Other frameworks' || heading === 'In a Nest app') continue
    for (const part of code.split('\n\n')) expect(here).toContain(squeezed(part))
  }
})

test("the page's file for node:test runs", async () => {
  const { code } = (await blocks()).find((block) => block.code.includes("from 'node:test'"))!
  const env = { ...process.env, NODE_OPTIONS: '' }
  const options = ['--disable-warning=ExperimentalWarning', '--input-type=module-typescript', '-e', code]
  const { stdout } = await promisify(execFile)(process.execPath, options, { env, timeout: 200_000 })
  expect(stdout).toMatch(/pass 1\n/)
  expect(stdout).toMatch(/fail 0\n/)
}, 240_000)
