import { expect, jest, test } from '@jest/globals'
import { sleep } from '../../src/time/index.js'
import { eventually } from '../support/database.js'
import { describeWithControlPlane } from './support/index.js'
import { useWorld } from './world.js'

jest.setTimeout(1_200_000)

const OUTAGE_MS = 20_000
const LOOK_EVERY_MS = 500
const CONTROLLERS = ['kube-controller-manager', 'kube-scheduler', 'kwok', 'cert-manager'] as const
const PATIENCE = { timeoutMs: 300_000, everyMs: 200 }

describeWithControlPlane('the API server is stopped for 20 s and started again', (own) => {
  const world = useWorld()

  test('documents wait without using attempts, and go on', async () => {
    const { controlPlane, cluster } = own()
    const [namespace, issuer] = [await cluster.namespace(), await cluster.issuer()]
    world.employ({ kubeconfig: cluster.kubeconfigText, namespace, issuer })
    await world.start()
    const phases = async () => (await world.documents()).map(({ phase }) => phase)
    const finished = (count: number) =>
      expect(phases()).resolves.toEqual(Array(count).fill(expect.stringMatching(/ed$/)))
    const before = await Promise.all([world.insertDomain(), world.insertDomain(), world.insertInstance()])
    await eventually(() => finished(before.length), PATIENCE)

    // Asked politely it would wait a minute for its watchers to go.
    await controlPlane.stopProgram('kube-apiserver', 'SIGKILL')
    const [domain] = before
    await world.want(domain!, 'Deleted')
    const during = await Promise.all([world.insertDomain(), world.insertDomain(), world.insertInstance()])
    const touched = [domain!, ...during]
    const waiting = async () => {
      const documents = await Promise.all(touched.map((id) => world.document(id)))
      return documents.map(({ phase, progress }) => ({ phase, attempts: progress?.attempts ?? 0 }))
    }
    const unfinished = touched.map(() => ({ phase: expect.stringMatching(/ing$/), attempts: 0 }))
    await eventually(async () => expect(await waiting()).toEqual(unfinished), PATIENCE)
    for (let ms = 0; ms < OUTAGE_MS; ms += LOOK_EVERY_MS) {
      await sleep(LOOK_EVERY_MS)
      expect(await waiting()).toEqual(unfinished)
    }

    await controlPlane.startProgram('kube-apiserver')
    // The cluster's own controllers pause for long after an outage, which isn't what this is about: they begin anew.
    for (const name of CONTROLLERS) {
      await controlPlane.stopProgram(name, 'SIGKILL')
      await controlPlane.startProgram(name)
    }
    // The deleted one is gone, all others are where they are to be.
    await eventually(() => finished(before.length + during.length - 1), PATIENCE)
    expect(await world.document(domain!)).toEqual({})
  })
})
