import { expect, test } from '@jest/globals'
import { describeWithCluster } from '../../kubernetes/support/index.js'
import { endContainer, TestKubelet, useKubelet } from '../pods/kubelet.js'
import { crashingOnce } from '../pods/world.js'
import { NO_NODE, useWorld } from './world.js'

describeWithCluster("a Kubernetes job's life", (cluster) => {
  const kubelet = useKubelet(cluster)
  const world = useWorld(cluster)

  test('runs to its end, leaves its result and nothing in the cluster', async () => {
    world.replica()
    const id = await world.insert({ command: ['sh', '-c', 'make all'], ...NO_NODE, logLines: 2 })
    const pod = await world.onePod()
    expect(pod['spec']).toMatchObject({
      restartPolicy: 'Never',
      automountServiceAccountToken: false,
      containers: [{ image: 'shop:1', command: ['sh', '-c', 'make all'] }],
    })
    await kubelet().end(world.site, pod, { exitCode: 0, log: 'one\ntwo\nthree\n' })
    const { result } = await world.untilPhase(id, 'Succeeded')
    expect(result).toMatchObject({ exitCode: 0, reason: null, log: 'two\nthree\n', logError: null, failedPods: 0 })
    expect(result).toMatchObject({ pod: pod.metadata.name, startedAt: expect.any(Date), finishedAt: expect.any(Date) })
    expect(await world.history(id)).toEqual([
      ...['- again', 'make moveTo Running', '- again', 'remove moveTo Succeeded'],
    ])
    expect(await world.left()).toEqual([])
  })

  test('that fails has its exit code and last lines; wanted again, it runs again under another name', async () => {
    world.replica()
    const id = await world.insert(NO_NODE)
    await kubelet().end(world.site, await world.onePod(), { exitCode: 3, log: 'no space left\n' })
    const { result, placed } = await world.untilPhase(id, 'Failed')
    expect(result).toMatchObject({ exitCode: 3, log: 'no space left\n', failedPods: 1 })
    expect(result.reason).toMatch(/^BackoffLimitExceeded: .*; pod \S+: it ended with exit code 3 \(Error\)$/)
    expect(placed.name).toBe(`job-${id}-1`)
    await world.write(id, { state: 'Retrying' })
    await endContainer(world.site, await world.onePod(), { exitCode: 0 })
    const again = await world.untilPhase(id, 'Succeeded')
    expect(again).toMatchObject({ run: 2, state: 'Running', placed: { name: `job-${id}-2` }, result: { reason: null } })
    expect(await world.left()).toEqual([])
  })

  test('whose node gives no log has its result all the same, and why there is no log', async () => {
    world.replica()
    const silent = await TestKubelet.start(cluster())
    const id = await world.insert(NO_NODE)
    await silent.end(world.site, await world.onePod(), { exitCode: 0, log: 'lost' })
    await silent.stop()
    const { result } = await world.untilPhase(id, 'Succeeded')
    expect(result).toMatchObject({ exitCode: 0, log: null, logError: expect.stringMatching(/connection refused/) })
  })

  test('every step that fails after its effect is repeated, and still there is one Job', async () => {
    const { wrap, crashed } = crashingOnce()
    const seen = new Set<string>()
    world.replica({
      wrap: (lifecycle, phase, handler) => {
        const crashing = wrap(lifecycle, phase, handler)
        return async (doc, step) => {
          for (const { metadata } of await world.jobs()) seen.add(metadata.uid!)
          return crashing(doc, step)
        }
      },
    })
    const id = await world.insert(NO_NODE)
    await endContainer(world.site, await world.onePod(), { exitCode: 0 })
    expect(await world.untilPhase(id, 'Succeeded')).toMatchObject({ run: 1 })
    expect(seen.size).toBe(1)
    expect(crashed).toEqual(['Creating -', 'Creating make', 'Running -', 'Running remove'])
    expect(await world.left()).toEqual([])
  })

  test.each([
    ['cancelled', 'Cancelled', 'Cancelled'],
    ['deleted', 'Deleted', undefined],
  ])('%s while it runs it ends, with its pod', async (_how, state, phase) => {
    world.replica()
    const id = await world.insert(NO_NODE)
    await world.onePod()
    await world.write(id, { state })
    expect(await world.untilPhase(id, phase)).toMatchObject(
      phase ? { result: { exitCode: null, reason: 'cancelled by its owner' } } : {},
    )
    expect(await world.left()).toEqual([])
  })
})
