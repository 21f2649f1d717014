import { expect, test } from '@jest/globals'
import { removeJobs, runJob } from 'phaselock-tasks'
import { lifecycleOf } from '../../../src/index.js'
import { type HeldCluster, onCluster } from '../../../src/kubernetes/index.js'
import { bindLifecycle, type WrapHandler } from '../../../src/tasks/index.js'
import { describeWithCluster } from '../../kubernetes/support/index.js'
import { endContainer, useKubelet } from '../pods/kubelet.js'
import { useSite } from '../pods/site.js'
import { crashingOnce, PodWorld, useDocuments } from '../pods/world.js'
import { NO_NODE } from './world.js'

const JOB = { apiVersion: 'batch/v1', kind: 'Job' }

interface Site {
  _id: unknown
  state?: 'Rebuilding' | 'Built'
  source: string
  built?: string | null
}

const definition = lifecycleOf<Site>().define({
  name: 'site',
  collection: 'Site',
  phases: { Building: { next: ['Built'] }, Built: { rest: true } },
  rules: [{ when: 'Rebuilding', from: ['Built', 'Building'], moveTo: 'Building', setState: 'Built' }],
})

/** Documents whose one phase builds something in a Job. */
class World extends PodWorld {
  replica(wrap?: WrapHandler): void {
    const { cluster, namespace } = this.site
    const building = onCluster<'Built', Site, HeldCluster>(
      (doc, step) => cluster.hold(doc, step, { name: 'site', collection: 'Site', db: this.db }),
      async (doc, step, held) => {
        if (step.name === 'built') {
          const removal = await removeJobs(held, namespace)
          return removal.done ? step.moveTo('Built') : step.wait(removal.text)
        }
        const job = await runJob(held, step, { namespace, image: 'builder:3', args: [doc.source], ...NO_NODE })
        if (job.kind === 'pending') return step.wait(job.reason)
        if (job.kind === 'failed') return step.park(job.result.reason ?? 'failed')
        return step.again({ step: 'built', set: { built: job.result.log } })
      },
    )
    this.run([bindLifecycle(definition.handle({ Building: building }), { db: this.db, wrap })])
  }

  jobs() {
    return this.site.cluster.list(JOB, { namespace: this.site.namespace })
  }

  pod(not?: string) {
    return this.until(async () => {
      const [pod] = (await this.site.pods()).filter(({ metadata }) => metadata.name !== not)
      if (!pod) throw new Error('expected a pod')
      return pod
    })
  }
}

describeWithCluster('a step that runs as a Kubernetes Job', (cluster) => {
  const kubelet = useKubelet(cluster)
  const site = useSite(cluster)
  const world = useDocuments((database) => new World(database, site, 'Site', 'Building'))

  test('is run once, though the step is repeated after crashes, and removed when its result is recorded', async () => {
    const { wrap, crashed } = crashingOnce()
    const seen = new Set<string>()
    world.replica((...given) => {
      const crashing = wrap(...given)
      return async (doc, step) => {
        for (const { metadata } of await world.jobs()) seen.add(metadata.uid!)
        return crashing(doc, step)
      }
    })
    const id = await world.insert({ source: 'a' })
    const pod = await world.pod()
    await kubelet().end(site, pod, { exitCode: 0, log: 'built a\n' })
    expect(await world.untilPhase(id, 'Built')).toMatchObject({ built: 'built a\n' })
    expect([seen.size, crashed]).toEqual([1, ['Building -', 'Building built']])
    expect(await site.left(JOB)).toEqual([])
  })

  test('what an earlier stay in the phase has left over is not taken for this one, but removed', async () => {
    world.replica()
    const id = await world.insert({ source: 'a' })
    const first = await world.pod()
    await world.write(id, { source: 'b', state: 'Rebuilding' })
    const second = await world.pod(first.metadata.name)
    expect(await world.jobs()).toHaveLength(1)
    await kubelet().end(site, second, { exitCode: 0, log: 'built b\n' })
    expect(await world.untilPhase(id, 'Built')).toMatchObject({ built: 'built b\n' })
  })

  test('that fails says how', async () => {
    world.replica()
    const id = await world.insert({ source: 'a' })
    await endContainer(site, await world.pod(), { exitCode: 2 })
    expect(await world.untilParked(id)).toMatch(/^BackoffLimitExceeded: .*it ended with exit code 2 \(Error\)$/)
  })
})
