import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { NoSmallDisk, SmallDisk } from '../../chaos/replica-set/small-disk.ts'
import { lifecycleOf, Replica } from '../../src/index.js'
import { eventually } from '../support/database.js'
import { describeWith } from '../support/describe-with.js'
import { TraceRecorder } from '../support/traces/recorder.js'
import { describeWithMongod } from './mongod.js'
import { useReplicaSet } from './support.js'

jest.setTimeout(300_000)

/** More than is written here. */
const MEGABYTES = 150
const STEPS = 3
const DOCUMENTS = 200
const ROOM_AFTER_MS = 2_000

interface Doc {
  _id: string
  note?: string
}

const lifecycle = lifecycleOf<Doc>().define({
  name: 'thing',
  collection: 'Thing',
  phases: { Working: { next: ['Done'] }, Done: { rest: true } },
  lockTimeout: '6s',
})

async function mountOne(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'phaselock-disk-'))
  try {
    await (await SmallDisk.mount(folder, 1)).close()
  } finally {
    await rm(folder, { recursive: true, maxRetries: 10 })
  }
}

const describeWithDisk = await describeWith('disk that can be filled', mountOne, NoSmallDisk)
const describeWithBoth = describeWithDisk === describe ? describeWithMongod : describe.skip

describeWithBoth.each([
  ['disk', { megabytes: MEGABYTES }],
  ['disk of its journal', { megabytes: MEGABYTES, journalOnly: true }],
])('the primary whose %s is full', (_, smallDisk) => {
  const on = useReplicaSet({ smallDisk })
  const closing: (() => Promise<void> | void)[] = []
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close()
  })

  test('ends by itself, another takes over, and it comes back: nothing is lost, and no recorded step runs again', async () => {
    const traces = TraceRecorder.start()
    closing.push(() => traces.stop())
    const ran = new Map<string, number[]>()
    const handlers = lifecycle.handle({
      Working: async (doc, step) => {
        const number = Number(step.name ?? 0)
        ran.set(doc._id, [...(ran.get(doc._id) ?? []), number])
        // Enough for the journal to need another file.
        const set = { note: String(step.fence).repeat(200) }
        return number + 1 < STEPS ? step.again({ step: String(number + 1), set }) : step.moveTo('Done', { set })
      },
    })
    const { db } = on.database
    for (const name of ['one', 'other']) {
      const replica = new Replica({ db, lifecycles: [handlers], name, grace: '1s' })
      closing.push(() => replica.stop())
      await replica.start()
    }
    const owner = db.collection<Doc & { phase: string }>('Thing', { writeConcern: { w: 'majority', j: true } })
    let acknowledged = 0
    const insert = async (until: () => boolean) => {
      for (let n = 0; n < DOCUMENTS || !until(); n += 1) {
        // A name of its own: one that was refused may be there nevertheless.
        await owner.insertOne({ _id: `${acknowledged}`, phase: 'Working' }).catch(async () => {
          await eventually(
            () => owner.updateOne({ _id: `${acknowledged}` }, { $setOnInsert: { phase: 'Working' } }, { upsert: true }),
            {
              timeoutMs: 60_000,
            },
          )
        })
        acknowledged += 1
      }
    }
    await insert(() => true)
    let isOver = false
    const [hasEnded] = await Promise.all([
      on.set.fillPrimarysDisk(ROOM_AFTER_MS).finally(() => {
        isOver = true
      }),
      insert(() => isOver),
    ])
    expect(hasEnded).toBe(true)
    await insert(() => true)
    await eventually(async () => expect(await owner.countDocuments({ phase: 'Done' })).toBe(acknowledged), {
      timeoutMs: 60_000,
      everyMs: 200,
    })
    await eventually(() => on.set.isWhole(), { timeoutMs: 60_000 })

    expect(await traces.contradictions(owner)).toEqual([])
    for (const [id, steps] of ran) {
      expect({ id, steps }).toEqual({ id, steps: steps.toSorted() })
      expect({ id, ran: new Set(steps).size }).toEqual({ id, ran: STEPS })
    }
    expect(ran.size).toBe(acknowledged)
  })
})
