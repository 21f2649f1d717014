import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, test } from '@jest/globals'
import { eventually } from '../../support/database.js'
import { describeWithS3, useWorld } from './world.js'

describeWithS3('several replicas', () => {
  const world = useWorld()
  const children: ChildProcess[] = []
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
  })

  function process(name: string, ...more: string[]): ChildProcess {
    const program = fileURLToPath(new URL('bucket-process.mjs', import.meta.url))
    const { endpoint, region, secretAccessKey } = world.server
    const args = [program, world.database.uri, endpoint, region, secretAccessKey, name, ...more]
    const child = spawn(globalThis.process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] })
    children.push(child)
    return child
  }

  test('2,500 versions, delete markers and open uploads go, though a replica is killed in the middle of a page', async () => {
    const replica = world.replica({ storage: async () => world.client })
    const id = await world.insert({ name: 'full', region: 'here', versioning: true })
    const other = await world.insert({ name: 'untouched', region: 'here' })
    await world.untilPhase(id, 'Created')
    await world.untilPhase(other, 'Created')
    await replica.stop()
    await world.fill('full', { objects: 1_500, versions: 500, markers: 500, uploads: 20 })
    await world.put('untouched', 'precious')
    await world.write(id, { state: 'Deleted' })
    const [, signal] = await once(process('victim', '3'), 'exit')
    expect(signal).toBe('SIGKILL')
    // Two pages were recorded; the third was deleted, and not recorded.
    const { progress } = await world.document(id)
    const recorded = progress.history.filter(({ step }: { step: string }) => step === 'objects')
    expect(recorded.reduce((sum: number, { count }: { count: number }) => sum + count, 0)).toBe(2)
    expect(await world.versions('full')).toBe(1_000) // as many as a listing has at most
    // As if its lockTimeout had passed, which is so long that a slow machine costs nobody a lease.
    await world.documents.updateOne({ _id: id }, { $set: { lockedAt: new Date(1) } })
    for (const name of ['pod-a', 'pod-b']) process(name)
    await eventually(async () => expect(await world.document(id)).toEqual({}), { timeoutMs: 300_000, everyMs: 100 })
    expect(await world.buckets()).toEqual(['untouched'])
    expect(await world.versions('untouched')).toBe(1)
  }, 900_000)

  test('who writes on while a bucket is being emptied is shut out', async () => {
    const grant = { Effect: 'Allow', Principal: { AWS: ['tenant'] }, Action: ['s3:PutObject'] }
    const tenant = world.clientOf('tenant')
    let writes = 0
    world.replica({
      wrap: (_lifecycle, _phase, handler) => async (doc, step) => {
        // The last moment before the bucket goes: something was written meanwhile.
        if (step.name === 'remove') {
          await world.put('busy', `late-${writes}`, 'x', tenant).then(
            () => {
              writes += 1
            },
            (error) => expect(error).toMatchObject({ name: 'AccessDenied' }),
          )
        }
        return handler(doc, step)
      },
    })
    const id = await world.insert({ name: 'busy', policy: [grant] })
    await world.untilPhase(id, 'Created')
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined)
    expect(writes).toBe(1)
    expect(await world.buckets()).not.toContain('busy')
  })

  test('every step that fails after its effect is repeated, and nothing is made twice or left', async () => {
    const failed: string[] = []
    const replica = world.replica({
      pageSize: 10,
      wrap: (_lifecycle, phase, handler) => async (doc, step) => {
        const outcome = await handler(doc, step)
        const at = `${phase} ${step.name ?? '-'}`
        if (failed.includes(at)) return outcome
        failed.push(at)
        throw new Error('crashed before its outcome was recorded')
      },
    })
    const id = await world.insert({ name: 'once', quotaBytes: 1_000, versioning: true, policy: 'public-read' })
    const until = (check: () => Promise<unknown>) =>
      world.until(async () => {
        await replica.lifecycle.wake(id)
        await check()
      })
    await until(async () => expect(await world.document(id)).toMatchObject({ phase: 'Created' }))
    await world.fill('once')
    await world.write(id, { state: 'Updating' })
    await until(async () => expect(await world.document(id)).toMatchObject({ phase: 'Created', state: 'Available' }))
    expect(await world.document(id)).toMatchObject({ usage: { versions: 30 } })
    await world.write(id, { state: 'Deleted' })
    await until(async () => expect(await world.document(id)).toEqual({}))
    expect(await world.buckets()).not.toContain('once')
    expect(failed).toEqual([
      ...['Creating -', 'Creating create', 'Creating versioning', 'Creating quota', 'Creating policy'],
      ...['Updating -', 'Updating quota', 'Updating policy'],
      ...['Deleting -', 'Deleting objects', 'Deleting remove'],
    ])
  })
})
