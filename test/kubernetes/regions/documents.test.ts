import { describe, expect, test } from '@jest/globals'
import { ObjectId } from 'mongodb'
import { Cluster, InvalidRegion, Regions, RegionUnavailable, singleRegion } from '../../../src/kubernetes/index.js'
import { Unavailable } from '../../../src/phases/index.js'
import { useDatabase } from '../../support/database.js'

const GOOD = {
  _id: 'eu-1',
  cluster: { kubeconfigFile: '/nowhere/kubeconfig' },
  namespace: 'gw-{gatewayId}',
  gateway: { domain: 'eu.example', tls: { enabled: true, issuer: { name: 'letsencrypt' } } },
}

describe('a Region document', () => {
  const database = useDatabase()

  /** Why documents of the region would wait. */
  const troubleOf = async (document: object | undefined, ...[name]: unknown[]): Promise<string> => {
    const regions = new Regions({ db: database.db })
    await database.db.collection('Region').deleteMany({})
    if (document) await database.db.collection('Region').insertOne(document)
    const error = await regions.of(name).catch((reason) => reason)
    expect(error).toBeInstanceOf(RegionUnavailable)
    expect(error).toBeInstanceOf(Unavailable)
    return error.message
  }

  test('says what is wrong with it, with what was expected and what came', async () => {
    const wrong: [object, string][] = [
      [
        { ...GOOD, gateway: { ...GOOD.gateway, domain: 'Not A Domain' } },
        'gateway.domain: expected a domain such as \'eu.example.org\', got "Not A Domain"',
      ],
      [
        { ...GOOD, gateway: { domain: 'eu.example', tls: { enabled: true } } },
        'gateway.tls.issuer: expected the issuer of certificates for custom domains, { name, kind }, as tls is enabled; got nothing',
      ],
      [
        { ...GOOD, gateway: { domain: 'eu.example', tls: { enabled: 'yes' } } },
        'gateway.tls.enabled: expected true or false, got "yes"',
      ],
      [{ ...GOOD, cluster: {} }, 'cluster: expected one of inCluster, kubeconfigFile and kubeconfig, got none'],
      [{ ...GOOD, cluster: { inCluster: true, kubeconfigFile: 'x' } }, 'got inCluster, kubeconfigFile'],
      [
        { ...GOOD, cluster: { kubeconfig: { secret: { namespace: 'a' } } } },
        'cluster.kubeconfig.secret.name: expected the name of a Secret, got nothing',
      ],
      [
        { ...GOOD, namespace: 'gw_{gatewayId}' },
        'namespace: expected a namespace, or a rule for one such as \'gw-{gatewayId}\', got "gw_{gatewayId}"',
      ],
      [
        { ...GOOD, namespace: 'shared', createNamespace: true },
        'createNamespace: expected a namespace rule with {gatewayId}',
      ],
      [{ ...GOOD, ingresClass: 'web' }, 'ingresClass'],
      [
        { ...GOOD, cluster: { kubeconfig: 'users: [{ user: { token: x } }]' } },
        'cluster.kubeconfig: expected { secret: { namespace, name, key } }, got a text',
      ],
      [{ ...GOOD, cluster: { kubeconfigFile: 'users:\n- token: x' } }, 'the path of a file, got a text'],
      [GOOD, "expected a kubeconfig in the file /nowhere/kubeconfig, which can't be read"],
    ]
    for (const [document, says] of wrong) expect(await troubleOf(document, 'eu-1')).toContain(says)
    expect(await troubleOf(undefined, 'eu-1')).toBe(
      "region eu-1 can't be used: expected a document eu-1 in the collection Region, there is none (removed, or never written): its documents wait until there is one",
    )
    expect(await troubleOf(undefined)).toContain('there is no default')
    expect(await troubleOf(undefined, 7)).toContain("expected a region's name")
  })

  test('gives each gatewayId a namespace of its own', () => {
    const cluster = Cluster.of({ name: 'eu', kubeconfig: 'default' })
    const gateway = { domain: 'eu.example' }
    const namespaceFor = async (rule: string, gatewayId: unknown) =>
      (await singleRegion('eu', cluster, { namespace: rule, gateway }).of()).namespaceFor({ gatewayId })
    const hex = '0123456789abcdef01234567'
    const ids = ['shop', 'Shop', 'a.b', 'a/b', hex, new ObjectId(hex), 7, '7', 'x'.repeat(70), { a: 1 }, new Date(0)]
    return Promise.all(ids.map((id) => namespaceFor('gw-{gatewayId}', id))).then(async (names) => {
      expect(new Set(names).size).toBe(ids.length)
      for (const name of names) expect(name).toMatch(/^gw-[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?$/)
      expect(names[0]).toBe('gw-shop')
      expect(names[5]).toBe(`gw-${hex}`)
      expect(await namespaceFor('shared', 'shop')).toBe('shared')
      expect(() => singleRegion('eu', cluster, { namespace: 'A', gateway })).toThrow(InvalidRegion)
    })
  })
})
