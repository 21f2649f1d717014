import { CreateBucketCommand } from '@aws-sdk/client-s3'
import { expect, test } from '@jest/globals'
import type { ObjectId } from 'mongodb'
import { Requests, Storages } from '../../../packages/tasks/src/bucket/storage/index.js'
import type { Holder } from '../../../src/phases/index.js'
import { eventually } from '../../support/database.js'
import { describeWithS3, useWorld, type World } from './world.js'

/** A replica whose named step, once, begins late: after its document has been taken away. */
function lateReplica(world: World, at: { phase: string; step: string | undefined }) {
  const arrived = Promise.withResolvers<void>()
  const go = Promise.withResolvers<void>()
  const ended = Promise.withResolvers<void>()
  let state: 'ahead' | 'waiting' = 'ahead'
  const replica = world.replica({
    wrap: (_lifecycle, phase, handler) => async (doc, step) => {
      if (state !== 'ahead' || phase !== at.phase || step.name !== at.step) return handler(doc, step)
      state = 'waiting'
      arrived.resolve()
      await go.promise
      return handler(doc, step).finally(ended.resolve)
    },
  })
  return {
    async untilArrived() {
      await eventually(async () => {
        await replica.tick()
        return state === 'waiting'
      })
      await arrived.promise
    },
    /** Lets the late step do what it still can, and records what it can. */
    async run() {
      go.resolve()
      await ended.promise
      await replica.idle()
    },
  }
}

/** As if the lease had run out: the holder was paused for long. Without its token, so that no renewal brings it back. */
const expire = (world: World, id: ObjectId) =>
  world.documents.updateOne({ _id: id }, { $set: { lockedAt: new Date(1) }, $unset: { lockedBy: 1 } })

describeWithS3('a step that goes on after it has lost its document', () => {
  const world = useWorld()

  test('makes no bucket for a document that is gone', async () => {
    const late = lateReplica(world, { phase: 'Creating', step: 'create' })
    const other = world.replica()
    const id = await world.insert({ name: 'late-one' })
    await late.untilArrived()
    await world.write(id, { state: 'Deleted' })
    await expire(world, id)
    await world.untilPhase(id, undefined, [other])
    await late.run()
    expect(await world.buckets()).toEqual([])
  })

  test.each(['create', 'versioning', 'policy'])(
    'changes nothing of a bucket that another has made (%s)',
    async (step) => {
      const late = lateReplica(world, { phase: 'Creating', step })
      const other = world.replica()
      const name = `made-by-another-${step}`
      const id = await world.insert({ name, policy: 'public-read' })
      await late.untilArrived()
      await expire(world, id)
      await world.untilPhase(id, 'Created', [other])
      await world.put(name, 'object')
      await world.write(id, { policy: 'private', state: 'Updating' })
      await world.until(
        async () => expect(await world.document(id)).toMatchObject({ state: 'Available', phase: 'Created' }),
        [other],
      )
      const before = await world.tags(name)
      await late.run()
      expect(await world.tags(name)).toEqual(before)
      expect(await world.anonymous(`${name}/object`)).toBe(403)
      await world.write(id, { state: 'Deleted' })
      await world.untilPhase(id, undefined, [other])
    },
  )

  test.each(['objects', 'remove'])('takes nothing from a later bucket of that name (Deleting, %s)', async (step) => {
    const late = lateReplica(world, { phase: 'Deleting', step })
    const other = world.replica()
    const first = await world.insert({ name: `again-${step}` })
    await world.untilPhase(first, 'Created', [other])
    await world.put(`again-${step}`, 'object')
    await world.write(first, { state: 'Deleted' })
    await late.untilArrived()
    await expire(world, first)
    await world.untilPhase(first, undefined, [other])
    const second = await world.insert({ name: `again-${step}` })
    await world.untilPhase(second, 'Created', [other])
    if (step === 'objects') await world.put(`again-${step}`, 'object')
    await late.run()
    expect(await world.buckets()).toContain(`again-${step}`)
    expect(await world.versions(`again-${step}`)).toBe(step === 'objects' ? 1 : 0)
    await world.write(second, { state: 'Deleted' })
    await world.untilPhase(second, undefined, [other])
  })

  test('sends no write once its lease is over, also when that happens while the request is being signed', async () => {
    const storage = await new Storages({ db: world.database.db, storage: world.client }).of(undefined)
    const lost = () => new Error('lost')
    let looks = 0
    const step = {
      fence: 1,
      signal: new AbortController().signal,
      leaseLeftMs() {
        looks += 1
        return looks > 2 ? 0 : 1_000
      },
    }
    const requests = new Requests(storage, 'too-late', { lost } as unknown as Holder, step)
    const command = () => new CreateBucketCommand({ Bucket: 'too-late' })
    await expect(requests.write('s3:CreateBucket', command())).rejects.toThrow('lost')
    await expect(requests.write('s3:CreateBucket', command())).rejects.toThrow('lost')
    expect(await world.buckets()).not.toContain('too-late')
    looks = 0
    const aborted = { ...step, signal: AbortSignal.abort(new Error('stop')) }
    const after = new Requests(storage, 'too-late', { lost } as unknown as Holder, aborted)
    await expect(after.write('s3:CreateBucket', command())).rejects.toThrow('lost')
    await expect(after.read('s3:CreateBucket', command())).rejects.toThrow('stop')
    expect(await world.buckets()).not.toContain('too-late')
  })
})
