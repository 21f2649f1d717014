import { beforeEach, expect, test } from '@jest/globals'
import { PARKED_AT } from '../../../src/lock/index.js'
import { describeWithCluster } from '../../kubernetes/support/index.js'
import { INGRESS, NOTHING, SECRET, useDomains } from './domains-world.js'

describeWithCluster('a runtime domain that gets another host name', (cluster) => {
  const world = useDomains(cluster)
  beforeEach(() => world.begin())

  const served = async () => (await world.list(INGRESS)).map((ingress) => (ingress['spec'] as any).rules[0].host)

  test('by one plain write: served under the new name, then nothing of the old one is left', async () => {
    world.replica(await world.region())
    const id = await world.insert({ host: 'shop.eu.example', customDomain: 'old.example.org' })
    await world.untilPhase(id, 'Created')
    const [before] = await world.list(INGRESS)
    await world.write(id, { customDomain: 'new.example.org', state: 'Updating' })
    await world.untilPhase(id, 'Created')
    const [after, ...others] = await world.list(INGRESS)
    expect(others).toEqual([])
    expect(after!.metadata.uid).toBe(before!.metadata.uid)
    const { reservedHost, placed, state } = await world.domain(id)
    expect({ reservedHost, state, leftover: placed.leftover }).toEqual({
      reservedHost: 'new.example.org',
      state: 'Running',
      leftover: [],
    })
    expect(after!['spec']).toMatchObject({
      tls: [{ hosts: ['new.example.org'], secretName: placed.certificate }],
      rules: [{ host: 'new.example.org' }],
    })
    expect(await world.there()).toMatchObject({ certificates: [placed.certificate], secrets: [placed.certificate] })

    // And back to the name below the region's domain: no certificate is needed any more.
    await world.write(id, { customDomain: null, state: 'Updating' })
    await world.untilPhase(id, 'Created')
    expect(await served()).toEqual(['shop.eu.example'])
    expect(await world.there()).toMatchObject({ certificates: [], secrets: [] })
    await world.write(id, { state: 'Deleted' })
    await world.until(async () => expect(await world.domain(id)).toEqual({}))
    expect(await world.there()).toEqual(NOTHING)
  })

  test('is served under the old name, which nobody else gets, until the new one’s certificate is there', async () => {
    const right = world.replica(await world.region())
    const missing = { enabled: true, issuer: { name: 'there-is-none', kind: 'ClusterIssuer' as const } }
    const wrong = world.replica(await world.region({ tls: missing }))
    const id = await world.insert({ host: 'old.example.org' })
    await world.untilPhase(id, 'Created', [right])
    await world.write(id, { host: 'new.example.org', state: 'Updating' })
    await world.until(async () => {
      expect(await world.domain(id)).toMatchObject({ phase: 'Updating', progress: { step: 'issued' } })
      expect((await world.domain(id))['lockedBy']).toBeUndefined()
    }, [wrong])
    expect(await served()).toEqual(['old.example.org'])
    expect(await world.domain(id)).toMatchObject({ reservedHost: ['new.example.org', 'old.example.org'] })
    for (const host of ['old.example.org', 'new.example.org']) {
      const other = await world.insert({ host })
      await world.until(async () => expect(await world.domain(other)).toMatchObject({ lockedAt: PARKED_AT }), [wrong])
      expect((await world.domain(other))['progress'].error.message).toMatch(`host name '${host}' is reserved by`)
    }
    await world.untilPhase(id, 'Created', [right])
    expect(await served()).toEqual(['new.example.org'])
    expect(await world.domain(id)).toMatchObject({ reservedHost: 'new.example.org' })
    expect((await world.there()).secrets).toHaveLength(1)
  })

  test('a name that another has parks it, still served under the old one; another plain write mends it', async () => {
    world.replica(await world.region())
    const id = await world.insert({ host: 'mine.example.org' })
    const other = await world.insert({ host: 'taken.eu.example' })
    await world.untilPhase(id, 'Created')
    await world.untilPhase(other, 'Created')
    await world.write(id, { host: 'taken.eu.example', state: 'Updating' })
    await world.until(async () =>
      expect(await world.domain(id)).toMatchObject({ phase: 'Updating', lockedAt: PARKED_AT }),
    )
    expect(await world.domain(id)).toMatchObject({ reservedHost: 'mine.example.org' })
    expect((await served()).sort()).toEqual(['mine.example.org', 'taken.eu.example'])
    await world.write(id, { host: 'mine-too.example.org', state: 'Updating' })
    await world.untilPhase(id, 'Created')
    expect((await served()).sort()).toEqual(['mine-too.example.org', 'taken.eu.example'])
    expect(await world.there()).toMatchObject({ certificates: [expect.any(String)], secrets: [expect.any(String)] })
  })

  test('changed twice, and stopped in the middle: what is left over goes in the end', async () => {
    const right = world.replica(await world.region())
    const missing = { enabled: true, issuer: { name: 'there-is-none', kind: 'ClusterIssuer' as const } }
    const wrong = world.replica(await world.region({ tls: missing }))
    const id = await world.insert({ host: 'one.example.org' })
    await world.untilPhase(id, 'Created', [right])
    for (const host of ['two.example.org', 'three.example.org']) {
      await world.write(id, { host, state: 'Updating' })
      await world.until(async () => {
        const { reservedHost, progress } = await world.domain(id)
        expect([reservedHost[0], progress.step]).toEqual([host, 'issued'])
      }, [wrong])
    }
    await world.write(id, { state: 'Stopped' })
    await world.untilPhase(id, 'Stopped', [wrong])
    expect(await served()).toEqual([])
    expect((await world.domain(id))['reservedHost']).toEqual([
      'three.example.org',
      'two.example.org',
      'one.example.org',
    ])
    await world.write(id, { state: 'Running' })
    await world.untilPhase(id, 'Created', [right])
    expect(await served()).toEqual(['three.example.org'])
    const { placed, reservedHost } = await world.domain(id)
    expect(reservedHost).toBe('three.example.org')
    expect(await world.there()).toMatchObject({ certificates: [placed.certificate], secrets: [placed.certificate] })
  })

  test('each step fails once after its effect: in the end one of each, and then nothing', async () => {
    const failed = new Set<string>()
    const failing = world.replica(await world.region(), {
      wrap: (_lifecycle, phase, handler) => async (doc, step) => {
        const outcome = await handler(doc, step)
        const key = `${doc['host']} ${phase} ${step.name}`
        if (outcome.kind === 'wait' || failed.has(key)) return outcome
        failed.add(key)
        throw new Error(`after the effect of ${key}`)
      },
    })
    // Errors back off for a second and more: awake at once instead.
    const until = (check: () => unknown) =>
      world.until(async () => {
        await world.domains.updateMany(
          { 'progress.attempts': { $gt: 0 }, lockedBy: { $exists: false } },
          { $set: { lockedAt: new Date(0) } },
        )
        await check()
      }, [failing])
    const id = await world.insert({ host: 'first.example.org' })
    await until(async () => expect(await world.domain(id)).toMatchObject({ phase: 'Created' }))
    await world.write(id, { host: 'second.example.org', state: 'Updating' })
    await until(async () => {
      const { phase, reservedHost } = await world.domain(id)
      expect({ phase, reservedHost }).toEqual({ phase: 'Created', reservedHost: 'second.example.org' })
    })
    expect(await served()).toEqual(['second.example.org'])
    expect((await world.list(SECRET)).length).toBe(1)
    await world.write(id, { state: 'Deleted' })
    await until(async () => expect(await world.domain(id)).toEqual({}))
    expect(await world.there()).toEqual(NOTHING)
    expect([...failed].filter((key) => key.startsWith('second'))).toEqual(
      [
        'Updating undefined',
        'Updating certificate',
        'Updating issued',
        'Updating ingress',

        'Updating leftover',
        'Updating leftover secrets',
        'Deleting undefined',
        'Deleting certificates',
        'Deleting secrets',
      ].map((step) => `second.example.org ${step}`),
    )
  })
})
