import { describe, expect, test } from '@jest/globals'
import { Injectable, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { LockLost, LockProviderUnavailable } from 'phaselock/locks'
import { NotFound } from 'phaselock/operations'
import * as v from 'valibot'
import { ConfigStore, defineConfig } from '../../packages/state/src/config/index.js'
import { InvalidKey, SharedStore } from '../../packages/state/src/index.js'
import { KeyUnusable, LoginFailed, Logins } from '../../packages/state/src/logins/index.js'
import { LoginsHttpModule, StateModule } from '../../packages/state/src/nest/index.js'
import { useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'

const mail = defineConfig({ name: 'mail', schema: v.object({ host: v.string() }), initial: { host: 'localhost' } })

@Injectable()
class Mailer {
  constructor(
    readonly store: SharedStore,
    readonly config: ConfigStore,
  ) {
    this.host = config.get(mail).host
  }
  readonly host: string
}

describe('Nest', () => {
  const ends = useEnds()
  const database = useDatabase()

  test('StateModule starts what it is given before providers are made, and closes it with the app', async () => {
    const config = new ConfigStore({ db: database.db, configs: [mail] })
    const store = new SharedStore({ client: database.db })
    @Module({ imports: [StateModule.forRootAsync({ useFactory: () => ({ store, config }) })], providers: [Mailer] })
    class App {}
    const app = await NestFactory.createApplicationContext(App, { logger: false, abortOnError: false })
    const mailer = app.get(Mailer)
    expect(mailer.host).toBe('localhost')
    await mailer.store.of('x').set('a', 1)
    expect(await store.of('x').get('a')).toBe(1)
    expect(() => app.get(Logins).of('crm')).toThrow(
      'expected logins among its options, because of of it is used, got none',
    )
    await app.close()
    expect(() => StateModule.forRoot({ stor: store } as never)).toThrow("unknown option 'stor'")
  })

  test('LoginsHttpModule serves logins to services that may have them, and refuses all others', async () => {
    const asked: unknown[] = []
    const failures = {
      locks: new LockProviderUnavailable('redis', 'lock', new Error('gone')),
      lost: new LockLost('x'),
      keys: new KeyUnusable('k2', 'PHASELOCK_STATE_KEYS has no key k2'),
      long: new InvalidKey('expected a key of at most 2048 bytes'),
      half: new URIError('URI malformed'),
    }
    const logins = {
      async context(profile: string, user?: string) {
        asked.push(['context', profile, user])
        if (profile === 'nope') throw new NotFound('no profile nope')
        if (profile === 'down') throw new LoginFailed('down', 'expected an answer')
        if (profile in failures) throw failures[profile as keyof typeof failures]
        return { profile, user, token: 't1' }
      },
      async refresh(profile: string, user: string | undefined, { replacing }: { replacing: string }) {
        asked.push(['refresh', profile, user, replacing])
        return { profile, user, token: 't2' }
      },
    } as unknown as Logins
    const by = ({ headers }: { headers: Readonly<Record<string, unknown>> }, profile: string) =>
      headers['authorization'] === 'Bearer s' && profile !== 'other' ? 'billing' : undefined
    @Module({ imports: [LoginsHttpModule.forRoot({ logins, by })] })
    class App {}
    const app = await NestFactory.create(App, { logger: false, abortOnError: false })
    await app.listen(0, '127.0.0.1')
    ends.push(() => app.close())
    const origin = await app.getUrl()
    const ask = async (path: string, init: RequestInit = {}, token = 's') => {
      const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` }
      const answer = await fetch(`${origin}${path}`, { ...init, headers })
      return [answer.status, await answer.json()]
    }
    const refresh = (body: object) => ask('/logins/crm/refresh', { method: 'POST', body: JSON.stringify(body) })
    expect(await ask('/logins/crm?user=bo')).toEqual([200, { profile: 'crm', user: 'bo', token: 't1' }])
    expect(await refresh({ replacing: 't1' })).toEqual([200, { profile: 'crm', token: 't2' }])
    expect(await ask('/logins/crm', {}, 'wrong')).toMatchObject([401, { error: 'unknownSender' }])
    expect(await ask('/logins/other')).toMatchObject([401, {}])
    expect(asked).toHaveLength(2)
    expect(await refresh({})).toMatchObject([400, { error: 'invalidRequest' }])
    expect(await ask('/logins/crm?user=a&user=b')).toMatchObject([400, {}])
    expect(await ask('/logins/nope')).toMatchObject([404, { error: 'noProfile' }])
    expect(await ask('/logins/down')).toMatchObject([502, { error: 'loginFailed' }])
    for (const profile of ['locks', 'lost', 'keys'])
      expect(await ask(`/logins/${profile}`)).toMatchObject([503, { error: 'unavailable' }])
    for (const profile of ['long', 'half'])
      expect(await ask(`/logins/${profile}`)).toMatchObject([400, { error: 'invalidRequest' }])
    const form = await fetch(`${origin}/logins/crm/refresh`, {
      method: 'POST',
      body: new URLSearchParams({ replacing: 't1' }),
      headers: { authorization: 'Bearer s' },
    })
    expect(form.status).toBe(415)
  })
})
