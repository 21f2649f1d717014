import { expect, test } from '@jest/globals'
import { instanceLifecycles } from 'phaselock-tasks'
import { Replica } from '../../../src/index.js'
import { singleRegion } from '../../../src/kubernetes/index.js'
import { describeWithCluster } from '../../kubernetes/support/index.js'
import { eventually } from '../../support/database.js'
import { useWorld } from './world.js'

describeWithCluster('instances in a region', (cluster) => {
  const world = useWorld(cluster)

  test('live in its namespace, stay there, and go on by themselves; those of an unknown one wait', async () => {
    const { db, site } = world
    const { namespace } = site
    const regions = singleRegion('eu-1', site.cluster, { namespace, gateway: { domain: 'eu.example.org' } })
    const { all, instance } = instanceLifecycles({ db, regions, keepFor: '0s' })
    const replica = new Replica({ db, lifecycles: all })
    world.replicas.push(replica)
    const id = await world.insert({ region: 'eu-1', state: 'Running' })
    const lost = await world.insert({ region: 'eu-9' })
    await replica.start()
    const until = (of: typeof id, phase: string | undefined) =>
      eventually(async () => expect((await world.document(of))['phase']).toBe(phase))
    await until(id, 'Started')
    expect(await world.document(id)).toMatchObject({ placed: { region: 'eu-1', namespace } })
    await eventually(async () => {
      const { progress } = await world.document(lost)
      expect(progress.waitingFor).toMatch(/^region eu-9 can't be used: /)
    })
    await instance.setState(lost as never, 'Deleted')
    await until(lost, undefined)
    await instance.setState(id as never, 'Deleted')
    await until(id, undefined)
    expect(await world.left()).toEqual([])
  })
})
