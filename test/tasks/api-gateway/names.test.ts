import { describe, expect, test } from '@jest/globals'
import { Binary, Long, ObjectId, UUID } from 'mongodb'
import { apiGatewayDefinitions, apiGatewayLifecycles, databaseNameFor } from '../../../src/tasks/index.js'
import { hostNameFor, InvalidHostName, parseHostName } from '../../../src/tasks/runtime-domain/host-name.js'

const HEX = '0123456789abcdef01234567'

describe('names', () => {
  test('ids that are legal in a database name are kept', () => {
    expect(databaseNameFor('shop-1')).toBe('gw_shop-1')
    expect(databaseNameFor(new ObjectId(HEX))).toBe(`gw_${HEX}`)
    expect(databaseNameFor('a'.repeat(60))).toBe(`gw_${'a'.repeat(60)}`)
  })

  test('any other id gets a legal name of its own, also without regard to case', () => {
    const ids: unknown[] = [
      'a',
      'A',
      'a.b',
      'a/b',
      'a b',
      'a\0b',
      '',
      '$',
      'ü',
      'ö',
      'a'.repeat(61),
      `${'a'.repeat(61)}b`,
      'x'.repeat(5_000),
      HEX,
      new ObjectId(HEX),
      5,
      '5',
      true,
      { a: 1 },
      { a: 2 },
      new Date(1),
      new UUID('00000000-0000-4000-8000-000000000000'),
      new Binary(Buffer.from('a')),
      Long.fromString('9007199254740993'),
    ]
    const names = ids.map(databaseNameFor)
    expect(new Set(names.map((name) => name.toLowerCase())).size).toBe(ids.length)
    for (const name of names) {
      expect(name).toMatch(/^gw_[a-z0-9_-]+$/)
      expect(Buffer.byteLength(name)).toBeLessThanOrEqual(63)
    }
    // The name that another id got is no way in.
    for (const [n, name] of names.entries()) {
      if (name.slice(3) !== ids[n]) expect(databaseNameFor(name.slice(3))).not.toBe(name)
    }
  })

  test('host names', () => {
    expect(hostNameFor('id-1', 'Shop', 'example.org')).toBe('shop.example.org')
    expect(hostNameFor('id-1', undefined, 'localhost')).toBe('id-1.localhost')
    expect(hostNameFor(new ObjectId(HEX), '', 'localhost')).toBe(`${HEX}.localhost`)
    expect(hostNameFor('id-1', 'My Shop!', 'localhost')).toMatch(/^my-shop-[0-9a-f]{16}\.localhost$/)
    expect(hostNameFor('A', undefined, 'localhost')).not.toBe(hostNameFor('a', undefined, 'localhost'))
    for (const name of ['ü', '-', 'a'.repeat(80), '日本', 'a.b']) parseHostName(hostNameFor(1, name, 'localhost'))
    expect(parseHostName('WWW.Example.ORG.')).toBe('www.example.org')
    for (const bad of [
      '',
      'a..b',
      '-a.b',
      'a_b.c',
      'a b',
      5,
      null,
      undefined,
      `${'a'.repeat(64)}.b`,
      'a.'.repeat(130),
    ]) {
      expect(() => parseHostName(bad)).toThrow(InvalidHostName)
    }
  })

  test('unknown settings and a bad base domain are refused', () => {
    const db = { collection: () => ({}) } as never
    expect(() => apiGatewayDefinitions({ lokTimeout: '3s' } as never)).toThrow(/unknown setting 'lokTimeout'/)
    expect(() => apiGatewayLifecycles({ db, baseDomain: 'not a domain' })).toThrow(InvalidHostName)
    expect(apiGatewayDefinitions().all.map(({ name }) => name)).toEqual([
      'api-gateway',
      'runtime-domain',
      'gateway-database',
    ])
  })
})
