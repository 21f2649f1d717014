import { beforeEach, expect, test } from '@jest/globals'
import type { KindRef } from '../../../src/kubernetes/index.js'
import { PARKED_AT } from '../../../src/lock/index.js'
import { describeWithCluster } from '../../kubernetes/support/index.js'
import { CERTIFICATE, INGRESS, NOTHING, SECRET, useDomains } from './domains-world.js'

describeWithCluster('a runtime domain', (cluster) => {
  const world = useDomains(cluster)
  beforeEach(() => world.begin())

  test('custom: its certificate is issued, then it is served with it; deleted it leaves nothing', async () => {
    world.replica(await world.region())
    const id = await world.insert({ host: 'shop.eu.example', customDomain: 'Shop.Example.org' })
    await world.untilPhase(id, 'Created')
    const name = `domain-${id}`
    const { placed, reservedHost } = await world.domain(id)
    expect(reservedHost).toBe('shop.example.org')
    expect(placed).toEqual({
      region: 'eu',
      namespace: world.namespace,
      ingress: name,
      certificate: expect.stringMatching(new RegExp(`^${name}-[0-9a-f]{8}$`)),
      leftover: [],
    })
    expect(await world.list(INGRESS)).toMatchObject([
      {
        metadata: { name },
        spec: {
          ingressClassName: 'web',
          tls: [{ hosts: ['shop.example.org'], secretName: placed.certificate }],
          rules: [
            {
              host: 'shop.example.org',
              http: { paths: [{ path: '/', backend: { service: { name: 'web', port: { number: 80 } } } }] },
            },
          ],
        },
      },
    ])
    const [secret] = await world.list(SECRET)
    expect(Object.keys(secret!['data'] as object)).toEqual(expect.arrayContaining(['tls.crt', 'tls.key']))

    await world.write(id, { state: 'Deleted' })
    await world.until(async () => expect(await world.domain(id)).toEqual({}))
    expect(await world.there()).toEqual(NOTHING)
  })

  test('below the region’s domain: the wildcard certificate, and none of its own; without TLS none at all', async () => {
    const plain = world.replica(await world.region({ tls: { enabled: false } }))
    const custom = await world.insert({ host: 'plain.example.org' })
    await world.untilPhase(custom, 'Created', [plain])
    expect((await world.list(INGRESS)).map((ingress) => (ingress['spec'] as any).tls)).toEqual([undefined])
    await world.write(custom, { state: 'Deleted' })
    await world.until(async () => expect(await world.domain(custom)).toEqual({}), [plain])

    const tls = world.replica(await world.region())
    const below = await world.insert({ host: 'shop.eu.example' })
    await world.untilPhase(below, 'Created', [tls])
    expect((await world.list(INGRESS)).map((ingress) => (ingress['spec'] as any).tls)).toEqual([
      [{ hosts: ['shop.eu.example'], secretName: 'wildcard' }],
    ])
    expect(await world.there()).toMatchObject({ certificates: [], secrets: [] })
  })

  test('waits with cert-manager’s own reason; a corrected region mends it', async () => {
    const missing = { enabled: true, issuer: { name: 'there-is-none', kind: 'ClusterIssuer' as const } }
    const wrong = world.replica(await world.region({ tls: missing }))
    const id = await world.insert({ host: 'shop.example.org' })
    await world.until(async () => {
      const { phase, progress } = await world.domain(id)
      expect({ phase, ...progress }).toMatchObject({
        phase: 'Creating',
        step: 'issued',
        attempts: 0,
        waitingFor: expect.stringMatching(/^Certificate domain-.* is not Ready: /),
      })
    }, [wrong])
    expect(await world.there()).toMatchObject({ ingresses: [] })
    const right = world.replica(await world.region())
    await world.untilPhase(id, 'Created', [right])
  })

  test('stopped it is served no more and keeps its name and certificate; started again it is served at once', async () => {
    world.replica(await world.region())
    const id = await world.insert({ host: 'shop.example.org' })
    await world.untilPhase(id, 'Created')
    const [before] = await world.list(CERTIFICATE)
    await world.write(id, { state: 'Stopped' })
    await world.untilPhase(id, 'Stopped')
    expect(await world.there()).toMatchObject({ ingresses: [], secrets: [expect.any(String)] })
    expect(await world.domain(id)).toMatchObject({ reservedHost: 'shop.example.org' })
    await world.write(id, { state: 'Running' })
    await world.untilPhase(id, 'Created')
    const [after] = await world.list(CERTIFICATE)
    expect(after!.metadata.uid).toBe(before!.metadata.uid)
    expect(await world.there()).toMatchObject({ ingresses: [expect.any(String)] })

    // Wanted Stopped from the beginning: no Ingress is ever made.
    const stopped = await world.insert({ host: 'later.example.org', state: 'Stopped' })
    await world.untilPhase(stopped, 'Stopped')
    expect((await world.there()).ingresses).toHaveLength(1)
    expect((await world.there()).certificates).toHaveLength(2)
  })

  test('deleted in order: Ingress, then Certificate, then Secret, each gone before the next; it says what holds one up', async () => {
    world.replica(await world.region())
    const id = await world.insert({ host: 'shop.example.org' })
    await world.untilPhase(id, 'Created')
    const hold = async (kind: KindRef, finalizers: string[]) => {
      const [object] = await world.list(kind)
      const body = { metadata: { finalizers } }
      const http = { method: 'PATCH', contentType: 'application/merge-patch+json', body } as const
      const { name, namespace } = object!.metadata
      await world.cluster.answerTo({ verb: 'patch', kind, namespace, object: name, http })
    }
    for (const kind of [INGRESS, CERTIFICATE, SECRET]) await hold(kind, ['example.org/held'])
    await world.write(id, { state: 'Deleted' })
    const left: Record<string, string[]> = {
      Ingress: ['certificates', 'secrets'],
      Certificate: ['secrets'],
      Secret: [],
    }
    for (const kind of [INGRESS, CERTIFICATE, SECRET]) {
      await world.until(async () => {
        const { progress, reservedHost } = await world.domain(id)
        expect(progress.waitingFor).toMatch(
          new RegExp(`^${kind.kind} domain-.* is still there, held by the finalizer example.org/held$`),
        )
        expect(reservedHost).toBe('shop.example.org')
      })
      const there: Record<string, string[]> = await world.there()
      for (const other of left[kind.kind]!) expect(there[other]).toHaveLength(1)
      await hold(kind, [])
    }
    await world.until(async () => expect(await world.domain(id)).toEqual({}))
    expect(await world.there()).toEqual(NOTHING)
  })

  test('compared from time to time: what somebody removed comes back, what its owner wrote is taken up', async () => {
    world.replica(await world.region(), { resync: '1s' })
    const id = await world.insert({ host: 'shop.eu.example' })
    await world.untilPhase(id, 'Created')
    const [ingress] = await world.list(INGRESS)
    await cluster().admin.delete({ ...INGRESS, metadata: { name: ingress!.metadata.name, namespace: world.namespace } })
    await world.write(id, { host: 'other.eu.example' })
    await world.until(async () =>
      expect((await world.list(INGRESS)).map(({ spec }) => (spec as any).rules[0].host)).toEqual(['other.eu.example']),
    )
    await world.until(async () => expect(await world.domain(id)).toMatchObject({ reservedHost: 'other.eu.example' }))
  })

  test('an Ingress of that name that is somebody else’s parks it, and survives its end', async () => {
    world.replica(await world.region())
    const id = await world.insert({ host: 'shop.eu.example', state: 'Stopped' })
    await world.untilPhase(id, 'Stopped')
    const spec = { defaultBackend: { service: { name: 'other', port: { number: 80 } } } }
    await cluster().make({ ...INGRESS, metadata: { name: `domain-${id}`, namespace: world.namespace }, spec })
    await world.write(id, { state: 'Running' })
    await world.until(async () => expect(await world.domain(id)).toMatchObject({ lockedAt: PARKED_AT }))
    expect((await world.domain(id))['progress'].error.message).toMatch(
      /Ingress domain-.* doesn't belong to runtime-domain/,
    )
    await world.write(id, { state: 'Deleted' })
    await world.until(async () => expect(await world.domain(id)).toEqual({}))
    const ingress = { ...INGRESS, metadata: { name: `domain-${id}`, namespace: world.namespace } }
    expect(await world.cluster.get(ingress)).toMatchObject({ spec })
  })
})
