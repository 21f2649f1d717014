import { inspect } from 'node:util'
import { describe, expect, test } from '@jest/globals'
import { SharedStore } from '../../packages/state/src/index.js'
import {
  LOGINS_COLLECTION,
  type LoginProfile,
  Logins,
  type LoginsOptions,
  loginsOf,
} from '../../packages/state/src/logins/index.js'
import { Keyring } from '../../packages/state/src/logins/keyring.js'
import { rotateSecrets } from '../../packages/state/src/logins/profiles.js'
import { lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { bindLifecycle } from '../../src/tasks/index.js'
import { useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { ana, KEYS, key, profileFor, startCrm } from './crm.js'

describe('Logins', () => {
  const ends = useEnds()
  const database = useDatabase()
  const opened = async (options: Partial<LoginsOptions> = {}) => {
    const store = new SharedStore({ client: database.db })
    ends.push(() => store.close())
    return new Logins({ db: database.db, store, keys: KEYS, ...options })
  }
  const crm = async () => {
    const one = await startCrm()
    ends.push(() => one.close())
    return one
  }

  test('logs in once for all processes, and keeps the token for its life less refreshBefore', async () => {
    const { origin, state, requests } = await crm()
    const processes = await Promise.all([opened(), opened(), opened()])
    await processes[0]!.define(profileFor(origin), ana)
    const all = await Promise.all(
      processes.flatMap((one) => Array.from({ length: 20 }, () => one.context('crm', 'bo'))),
    )
    expect(new Set(all.map(({ token }) => token))).toEqual(new Set(['token-1-of-bo']))
    expect(all[0]!.authorization).toBe('Bearer token-1-of-bo')
    expect(state.logins).toBe(1)
    expect(requests[0]!.body).toBe('username=bo&password=hunter2%26x')
    const entry = await database.db.collection('phaselock.state').findOne({})
    const left = (entry!['expiresAt'] as Date | undefined)?.getTime() ?? Number.NaN
    expect(Math.abs(left - Date.now() - 3_540_000)).toBeLessThan(60_000)
    expect((await processes[0]!.context('crm', 'cy')).token).toBe('token-2-of-cy')
  })

  test('of 100 that were refused with the same token, one logs in', async () => {
    const { origin, state, endAll } = await crm()
    const [one, other] = [await opened(), await opened()]
    await one.define(profileFor(origin), ana)
    const { token } = await one.context('crm', 'bo')
    endAll()
    const anew = await Promise.all(
      Array.from({ length: 100 }, (_, i) => (i % 2 ? one : other).refresh('crm', 'bo', { replacing: token })),
    )
    expect(new Set(anew.map((login) => login.token))).toEqual(new Set(['token-2-of-bo']))
    expect(state.logins).toBe(2)
  })

  test('use and fetch repeat once after a 401, and not after anything else', async () => {
    const { origin, state, endAll } = await crm()
    const logins = await opened()
    await logins.define(profileFor(origin), ana)
    const handle = logins.of('crm', 'bo')
    expect(await (await handle.fetch(`${origin}/orders`)).text()).toBe('hello token-1-of-bo')
    endAll()
    expect(await (await handle.fetch(`${origin}/orders`)).text()).toBe('hello token-2-of-bo')
    endAll()
    const call = async ({ authorization }: { authorization: string }) => {
      const answer = await fetch(`${origin}/orders`, { headers: { authorization } })
      if (!answer.ok) throw Object.assign(new Error('refused'), { response: { status: answer.status } })
      return await answer.text()
    }
    expect(await handle.use(call)).toBe('hello token-3-of-bo')
    expect([state.logins, state.refused]).toEqual([3, 2])
    let calls = 0
    const fails = async () => {
      calls += 1
      throw Object.assign(new Error('refused'), { status: calls === 1 ? 401 : 500 })
    }
    await expect(handle.use(fails)).rejects.toThrow('refused')
    expect(calls).toBe(2)
    const forbidden = async () => {
      throw Object.assign(new Error('no'), { status: 403 })
    }
    await expect(handle.use(forbidden)).rejects.toThrow('no')
    expect(state.logins).toBe(4)
  })

  test('steps get logins by name', async () => {
    const { origin } = await crm()
    const logins = await opened()
    await logins.define(profileFor(origin), ana)
    const order = lifecycleOf<{ _id: string; owner: string; said?: string }>().define({
      name: 'order',
      collection: 'Order',
      phases: { Sending: { next: ['Sent'] }, Sent: { rest: true } },
    })
    const bound = bindLifecycle(
      order.handle({
        Sending: async (_doc, step) => {
          const answer = await loginsOf(step)['crm']!.fetch(`${origin}/orders`)
          return step.moveTo('Sent', { set: { said: await answer.text() } })
        },
      }),
      { db: database.db, wrap: logins.wrap({ crm: { profile: 'crm', user: (doc: { owner: string }) => doc.owner } }) },
    )
    await bound.insert({ _id: 'o1', owner: 'bo' })
    const replica = new Replica({ db: database.db, lifecycles: [bound], logger: silentLogger })
    await replica.runOnce()
    await replica.stop()
    expect(await database.db.collection<{ _id: string }>('Order').findOne({ _id: 'o1' })).toMatchObject({
      said: 'hello token-1-of-bo',
    })
    expect(() => loginsOf({})).toThrow('loginsOf: expected a step of a lifecycle that was bound with')
  })

  test('neither secrets nor tokens are readable in the database, in logs or in errors', async () => {
    const { origin, state } = await crm()
    const logins = await opened()
    await logins.define(profileFor(origin), ana)
    const login = await logins.context('crm', 'bo')
    const everything = await Promise.all(
      (await database.db.collections()).map((one) =>
        one
          .find()
          .toArray()
          .then((all) => JSON.stringify(all) + inspect(all, { depth: 9 })),
      ),
    )
    for (const secret of ['hunter2', 'token-1']) expect(everything.join()).not.toContain(secret)
    for (const text of [JSON.stringify(login), inspect(login, { depth: 9, showHidden: false }), inspect({ ...login })])
      expect(text).not.toContain('token-1')

    state.answer = { status: 403, body: '{"you": "hunter2&x"}' }
    const failed = await logins.refresh('crm', 'bo', { replacing: login.token }).catch((error: Error) => error)
    expect(String(failed)).toBe(
      `LoginFailed: crm: expected POST ${origin}/login to answer 2xx, got 403; check the secrets of the profile, and the user`,
    )
    expect(inspect(failed, { depth: 9 })).not.toMatch(/hunter2|token-1/)
  })

  test('says what is wrong with an answer, in names of fields only; the next caller tries again', async () => {
    const { origin, state } = await crm()
    const logins = await opened()
    await logins.define({ ...profileFor(origin), expiresAt: 'ends' }, ana)
    const answers: [typeof state.answer, string][] = [
      [
        { status: 200, body: '{"data": {"user": "s3cret"}, "ok": true}' },
        'expected a token at data.access_token of the answer, got the fields data.user, ok',
      ],
      [{ status: 200, body: '<html>' }, 'got an answer that is not JSON'],
      [
        { status: 200, body: `{"data": {"access_token": "t"}, "expires_in": -5}` },
        'got one that ends -5 s after it was given',
      ],
      [{ status: 302, body: '', headers: { location: 'http://evil.example/' } }, 'got 302; redirects are not followed'],
      [{ status: 200, body: 'x'.repeat(1_100_000) }, 'got an answer of more than 1048576 bytes'],
      [{ status: 200, body: `${'['.repeat(100_000)}${']'.repeat(100_000)}` }, 'expected a token at data.access_token'],
    ]
    for (const [answer, problem] of answers) {
      state.answer = answer
      await expect(logins.context('crm', 'bo')).rejects.toThrow(problem)
    }
    expect(state.logins).toBe(answers.length)
    state.answer = {
      status: 200,
      headers: { date: 'Thu, 26 Nov 2026 00:00:00 GMT' },
      body: '{"data": {"access_token": "t"}, "ends": "2026-11-26T01:00:00Z"}',
    }
    expect((await logins.context('crm', 'bo')).token).toBe('t')
    await expect(logins.context('crm')).rejects.toThrow('expected a user, because the profile has {{user}}, got none')
    await expect(logins.context('crn')).rejects.toThrow(
      'expected the name of a login profile of the environment default, got crn',
    )
  })

  test('a changed profile logs in anew', async () => {
    const { origin, state } = await crm()
    const logins = await opened()
    expect(await logins.define(profileFor(origin), ana)).toBe(1)
    await logins.context('crm', 'bo')
    expect(
      await logins.define({ ...profileFor(origin), secrets: { password: 'new' } }, { ...ana, reason: 'leaked' }),
    ).toBe(2)
    expect((await logins.context('crm', 'bo')).token).toBe('token-2-of-bo')
    expect(state.logins).toBe(2)
  })

  test('rotation seals all secrets with the newest key while others log in; then the old key can go', async () => {
    const { origin } = await crm()
    const both = `k2=${key(2)},${KEYS}`
    const [old, rotating] = [await opened(), await opened({ keys: both })]
    for (let i = 0; i < 5; i += 1) await old.define({ ...profileFor(origin), name: `crm${i}` }, ana)
    const busy = Promise.all(Array.from({ length: 50 }, (_, i) => rotating.context(`crm${i % 5}`, `u${i}`)))
    const rotated = await rotateSecrets(database.db, Keyring.from(both))
    expect(rotated).toMatchObject({ secrets: 5, key: 'k2' })
    await busy
    expect(await rotateSecrets(database.db, Keyring.from(both))).toMatchObject({ secrets: 0, profiles: [] })
    const only = await opened({ keys: `k2=${key(2)}` })
    expect((await only.context('crm0', 'new')).token).toMatch(/-of-new$/)
    await expect(old.context('crm0', 'newer')).rejects.toThrow(
      'PHASELOCK_STATE_KEYS has no key k2, which sealed the secret password of the login profile default:crm0; it has k1',
    )
    const wrong = await opened({ keys: `k2=${key(3)}` })
    await expect(wrong.context('crm0', 'newest')).rejects.toThrow(
      'expected the key k2 of PHASELOCK_STATE_KEYS to open the secret password',
    )
    // A sealed text that was moved to another place can't be opened there.
    const stored = await database.db.collection(LOGINS_COLLECTION).findOne({ 'profile.name': 'crm1' })
    await database.db
      .collection(LOGINS_COLLECTION)
      .updateOne({ 'profile.name': 'crm2' }, { $set: { secrets: stored!['secrets'] } })
    await expect(only.context('crm2', 'x')).rejects.toThrow(
      'it is another key than the one that sealed it, or the sealed text was changed',
    )
  })

  test('refuses profiles, keys and options that can not work', async () => {
    const logins = await opened()
    const bad: [object, string][] = [
      [{ name: 'a b' }, "name: expected 1 to 64 letters, digits, '-', '_' and '.', got \"a b\""],
      [{ url: 'ftp://x' }, 'url: expected an http or https URL'],
      [{ url: 'https://u:p@x/' }, 'without a user or password in it'],
      [{ tokn: 'x' }, "unknown field 'tokn'"],
      [{ token: '' }, 'token: expected the place of the token'],
      [
        { body: { p: '{{secret.passwort}}' } },
        '{{secret.passwort}}: expected {{user}} or {{secret.<name>}} of password',
      ],
      [{ body: ['x'] }, 'body: expected an object of texts, because form is true'],
      [{ ttl: '1x' }, 'ttl: expected'],
      [{ secrets: { password: '' } }, 'secrets: password: expected 1 to 65536 characters'],
      [{ method: 'GET' }, 'body: expected none with the method GET'],
    ]
    for (const [change, problem] of bad)
      await expect(
        (async () => logins.define({ ...profileFor('http://x'), ...change } as LoginProfile, ana))(),
      ).rejects.toThrow(problem)
    for (const keys of ['', 'k1', `k1=${key(1).slice(4)}`, `${KEYS},${KEYS}`]) {
      const failed = (() => {
        try {
          return Keyring.from(keys)
        } catch (error) {
          return error as Error
        }
      })()
      expect(failed).toMatchObject({ name: 'InvalidOptions' })
      expect(String(failed)).not.toContain(key(1).slice(8, 20))
    }
    await expect(opened({ lockwait: '1s' } as never)).rejects.toThrow("unknown option 'lockwait'")
  })
})
