import { expect, test } from '@jest/globals'
import { describeWithCluster } from '../../kubernetes/support/index.js'
import { eventually } from '../../support/database.js'
import { endContainer } from '../pods/kubelet.js'
import { NO_NODE, useWorld } from './world.js'

describeWithCluster('a Kubernetes job in trouble', (cluster) => {
  const world = useWorld(cluster)

  test('says what its pod waits for, also when it may have none, and goes on when it is mended', async () => {
    world.replica()
    const unschedulable = await world.insert(NO_NODE)
    const { trouble } = await world.untilWaiting(unschedulable, /^Unschedulable: pod job-\S+: .*Insufficient cpu/)
    expect(trouble).toMatch(/^Unschedulable/)
    const { namespace } = world.site
    const quota = { apiVersion: 'v1', kind: 'ResourceQuota', metadata: { name: 'tight', namespace } }
    await world.site.create({ ...quota, spec: { hard: { pods: '0' } } })
    await cluster().untilNoPodMayBeMade(namespace)
    const over = await world.insert({ logLines: 0 })
    await world.untilWaiting(over, /^QuotaExceeded: its pods can't be created: .*exceeded quota: tight/)
    await world.site.delete(quota)
    expect(await world.untilPhase(over, 'Succeeded')).toMatchObject({ trouble: null, result: { exitCode: 0 } })
  })

  test('that runs out of time fails without an exit code', async () => {
    world.replica()
    const id = await world.insert({ ...NO_NODE, activeDeadlineSeconds: 1 })
    const { result } = await world.untilPhase(id, 'Failed')
    expect(result).toMatchObject({ exitCode: null, reason: expect.stringMatching(/^DeadlineExceeded: /) })
    expect(await world.left()).toEqual([])
  })

  test('that somebody removes has failed: it is not run a second time', async () => {
    world.replica()
    const id = await world.insert(NO_NODE)
    await world.onePod()
    await world.site.delete(world.site.ref('batch/v1', 'Job', `job-${id}-1`))
    const { result } = await world.untilPhase(id, 'Failed')
    expect(result.reason).toBe(`Job job-${id}-1 no longer exists: it was removed before its end was seen`)
    expect(await world.jobs()).toEqual([])
  })

  test('that has ended, and is being removed before that was seen, has its result', async () => {
    world.replica()
    const id = await world.insert({ ...NO_NODE, logLines: 0 })
    const pod = await world.onePod()
    const ref = world.site.ref('batch/v1', 'Job', `job-${id}-1`)
    await world.site.patch(ref, { metadata: { finalizers: ['example.com/hold'] } })
    await endContainer(world.site, pod, { exitCode: 0 })
    await eventually(async () => {
      const { status } = (await world.site.cluster.get(ref)) as { status?: { conditions?: { type: string }[] } }
      expect(status?.conditions?.map(({ type }) => type)).toContain('Complete')
    })
    await world.site.delete(ref)
    await world.untilWaiting(id, /is still there, held by the finalizer/)
    await world.site.patch(ref, { metadata: { finalizers: null } })
    expect((await world.untilPhase(id, 'Succeeded'))['result']).toMatchObject({ reason: null })
  })

  test('for what it says is parked before anything is made', async () => {
    world.replica()
    const id = await world.insert({ image: 'shop:1', backoffLimit: 1.5, activeDeadlineSeconds: '5m' })
    expect(await world.untilParked(id)).toBe(
      'activeDeadlineSeconds: expected a whole number of seconds from 1 to 2147483647, got "5m"; backoffLimit: expected a whole number from 0 to 1000, got 1.5',
    )
    expect(await world.left()).toEqual([])
  })
})
