import { inspect } from 'node:util'
import { describe, expect, test } from '@jest/globals'
import { SharedStore } from '../../packages/state/src/index.js'
import { LOGINS_COLLECTION, Logins, type LoginsOptions } from '../../packages/state/src/logins/index.js'
import { removeProfile } from '../../packages/state/src/logins/profiles.js'
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

  test('a profile that was removed and defined again logs in anew, although its version is 1 again', async () => {
    const { origin, state } = await crm()
    const logins = await opened()
    const account = (password: string) => ({ ...profileFor(origin), secrets: { password } })
    expect(await logins.define(account('first'), ana)).toBe(1)
    expect((await logins.context('crm', 'bo')).token).toBe('token-1-of-bo')
    await removeProfile({ db: database.db, environment: 'default' }, 'crm')
    expect(await logins.define(account('second'), ana)).toBe(1)
    expect((await logins.context('crm', 'bo')).token).toBe('token-2-of-bo')
    expect(state.logins).toBe(2)
  })

  test('a secret, user or token that a header cannot hold is LoginFailed, and quoted nowhere', async () => {
    const { origin, state } = await crm()
    const logins = await opened()
    const headers = { 'x-login': '{{user}}:{{secret.password}}' }
    const problem = 'crm: header x-login: expected a value that a header can hold: one line of Latin characters'
    for (const [user, password] of [
      ['bo', 'a\nhunter2'],
      ['김', 'hunter2'],
    ] as const) {
      await logins.define({ ...profileFor(origin), headers, secrets: { password } }, ana)
      const failed = await logins.context('crm', user).catch((error: Error) => error)
      expect(failed).toMatchObject({ name: 'LoginFailed', message: problem })
      expect(inspect(failed, { depth: 9, showHidden: true })).not.toMatch(/hunter2|김/)
    }
    expect(state.logins).toBe(0)
    await logins.define(profileFor(origin), ana)
    state.answer = { status: 200, body: JSON.stringify({ data: { access_token: 's3cret\nx: y' } }) }
    const failed = await logins.context('crm', 'bo').catch((error: Error) => error)
    expect(failed).toMatchObject({ name: 'LoginFailed', message: expect.stringContaining('printable characters') })
    expect(inspect(failed, { depth: 9 })).not.toContain('s3cret')
    await expect(
      (async () => logins.define({ ...profileFor(origin), headers: { 'x y': 'z' } }, ana))(),
    ).rejects.toThrow('headers: expected a name of a header, got "x y"')
  })

  test('an expires_in of null counts as not given', async () => {
    const { origin, state } = await crm()
    const logins = await opened()
    await logins.define({ ...profileFor(origin), ttl: '2h' }, ana)
    state.answer = { status: 200, body: '{"data": {"access_token": "t"}, "expires_in": null}' }
    expect((await logins.context('crm', 'bo')).token).toBe('t')
  })

  test('while a new key is rolled out, a process without it logs in and does not fail', async () => {
    const { origin, state } = await crm()
    const both = `k2=${key(2)},${KEYS}`
    const [newer, older] = [await opened({ keys: both }), await opened()]
    await older.define(profileFor(origin), ana)
    expect((await newer.context('crm', 'bo')).token).toBe('token-1-of-bo')
    expect((await older.context('crm', 'bo')).token).toBe('token-2-of-bo')
    expect((await newer.context('crm', 'bo')).token).toBe('token-2-of-bo')
    expect(state.logins).toBe(2)
  })

  test('ten processes that define the same profile when they start leave it and its logins as they are', async () => {
    const { origin, state } = await crm()
    const processes = await Promise.all(Array.from({ length: 10 }, () => opened()))
    const profile = { ...profileFor(origin), body: { username: '{{user}}', p: '{{secret.a}}{{secret.b}}' } }
    const define = (one: Logins, b = 'y') => one.define({ ...profile, ttl: undefined, secrets: { b, a: 'x' } }, ana)
    expect(new Set(await Promise.all(processes.map((one) => define(one))))).toEqual(new Set([1]))
    await processes[0]!.context('crm', 'bo')
    const stored = () => database.db.collection(LOGINS_COLLECTION).find().toArray()
    const before = await stored()
    expect(await define(processes[1]!)).toBe(1)
    expect(await stored()).toEqual(before)
    await processes[2]!.context('crm', 'bo')
    expect(state.logins).toBe(1)
    expect(await define(processes[3]!, 'z')).toBe(2)
    await processes[4]!.context('crm', 'bo')
    expect(state.logins).toBe(2)
  })

  test('100 refreshes for which the system answers the same token are one login', async () => {
    const { origin, state } = await crm()
    const logins = await opened()
    await logins.define(profileFor(origin), ana)
    state.answer = { status: 200, body: '{"data": {"access_token": "t"}}' }
    const { token } = await logins.context('crm', 'bo')
    const refresh = () => logins.refresh('crm', 'bo', { replacing: token })
    expect((await Promise.all(Array.from({ length: 100 }, refresh))).map((one) => one.token)).toEqual(
      Array.from({ length: 100 }, () => 't'),
    )
    // One more for callers that come while the answer is being stored.
    expect(state.logins).toBeLessThanOrEqual(3)
  })
})
