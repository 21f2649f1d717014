import { inspect } from 'node:util'
import { describe, expect, test } from '@jest/globals'
import { SharedStore } from '../../packages/state/src/index.js'
import { Logins, type LoginsOptions } from '../../packages/state/src/logins/index.js'
import { removeProfile } from '../../packages/state/src/logins/profiles.js'
import { useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { ana, KEYS, profileFor, startCrm } from './crm.js'

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
})
