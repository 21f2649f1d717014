import { expect, test } from '@jest/globals'
import type { ObjectId } from 'mongodb'
import { describeWithCluster } from '../../kubernetes/support/index.js'
import { useWorld, type World } from './world.js'

/** Names and images of the pods that aren't on their way out. */
async function pods(world: World): Promise<{ name: string; image: string }[]> {
  const found = await world.site.pods()
  return found.map(({ metadata: { name }, spec }) => {
    const { containers } = spec as { containers: { image: string }[] }
    return { name, image: containers[0]!.image }
  })
}

const settled = (world: World, id: ObjectId, image: string) =>
  world.until(async () => {
    expect(await world.document(id)).toMatchObject({ phase: 'Started', state: 'Running', image })
    expect((await pods(world)).map((pod) => pod.image)).toEqual([image])
  })

describeWithCluster("changes of an instance's resources", (cluster) => {
  const world = useWorld(cluster)

  test('roll out with the state Updating: a new image in new pods, more replicas beside the old ones', async () => {
    world.replica()
    const id = await world.insert({ ports: [{ port: 80 }], state: 'Running' })
    await world.untilPhase(id, 'Started')
    await world.write(id, { image: 'shop:2', state: 'Updating' })
    await settled(world, id, 'shop:2')
    const [before] = await pods(world)
    await world.write(id, { replicas: 2, ports: [], state: 'Updating' })
    await world.until(async () => expect(await world.document(id)).toMatchObject({ phase: 'Started', address: null }))
    expect(await pods(world)).toHaveLength(2)
    expect(await pods(world)).toContainEqual(before)
    expect(await world.service(id)).toBeUndefined()
  })

  test('written while it starts are noticed at the next look', async () => {
    world.replica()
    const id = await world.insert({ image: 'shop:1', resources: { requests: { cpu: '5000' } } })
    await world.untilWaiting(id, /^Unschedulable: pod instance-\S+: .*Insufficient cpu/)
    await world.write(id, { resources: { requests: { cpu: '1' } } })
    await world.untilPhase(id, 'Started')
    expect(await world.document(id)).toMatchObject({ trouble: null })
  })

  test('of one that is stopped are taken up when it starts; Updating leaves it stopped', async () => {
    world.replica()
    const id = await world.insert({ phase: 'Stopped', state: 'Stopped' })
    await world.write(id, { image: 'shop:2', state: 'Updating' })
    await world.until(async () =>
      expect(await world.document(id)).toMatchObject({ phase: 'Stopped', state: 'Stopped' }),
    )
    expect(await world.left()).toEqual([])
    await world.write(id, { state: 'Running' })
    await settled(world, id, 'shop:2')
  })

  test('written without a state, and what others changed in the cluster, are put right by the resync', async () => {
    world.replica({ resync: '10m' })
    const id = await world.insert({ state: 'Running' })
    await world.untilPhase(id, 'Started')
    await world.write(id, { image: 'shop:2' })
    await world.pass(601_000)
    await settled(world, id, 'shop:2')
    await world.site.delete(world.site.ref('apps/v1', 'Deployment', `instance-${id}`))
    await world.until(async () => expect(await pods(world)).toEqual([]))
    await world.pass(601_000)
    await settled(world, id, 'shop:2')
  })

  test('that are wrong park it while its pods run on; corrected ones go on', async () => {
    world.replica()
    const id = await world.insert({ state: 'Running' })
    await world.untilPhase(id, 'Started')
    await world.write(id, { image: 'Not An Image', state: 'Updating' })
    expect(await world.untilParked(id)).toBe(
      `image: expected an image such as 'registry.example.org/shop:1.2', got "Not An Image"`,
    )
    expect(await pods(world)).toHaveLength(1)
    await world.write(id, { image: 'shop:3', state: 'Updating' })
    await settled(world, id, 'shop:3')
  })
})
