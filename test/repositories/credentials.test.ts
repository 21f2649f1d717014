import { expect, test } from '@jest/globals'
import { fixedToken, type LoginsOf, loginCredentials } from 'phaselock-repositories'
import type { Logins } from 'phaselock-state/logins'
import { TokenRefused, withToken } from '../../packages/repositories/src/source/credentials.js'

const { signal } = new AbortController()

/** A server of logins that has one valid token. */
function logins() {
  const calls: string[] = []
  let token = 'first'
  const made: LoginsOf = {
    context: async (profile) => {
      calls.push(`context ${profile}`)
      return { token }
    },
    refresh: async (profile, _user, { replacing }) => {
      calls.push(`refresh ${profile} ${replacing}`)
      token = 'second'
      return { token }
    },
  }
  return { made, calls }
}

test('the logins of phaselock-state are such logins', () => {
  const asIs = (real: Logins): LoginsOf => real
  expect(asIs).toBeInstanceOf(Function)
})

test('a token that was refused is replaced once, and the request repeated once', async () => {
  const { made, calls } = logins()
  const credentials = loginCredentials(made)('gitlab')
  const tokens: (string | undefined)[] = []
  const answer = await withToken(credentials, { signal }, async (token) => {
    tokens.push(token)
    if (token === 'first') throw new TokenRefused(new Error('401'))
    return 'ok'
  })
  expect(answer).toBe('ok')
  expect(tokens).toEqual(['first', 'second'])
  expect(calls).toEqual(['context gitlab', 'refresh gitlab first'])
})

test('where no other token is to be had, what was shown for the refusal is thrown', async () => {
  const refuse = async () => {
    throw new TokenRefused(new Error('401 Unauthorized'))
  }
  await expect(withToken(fixedToken('glpat-x'), { signal }, refuse)).rejects.toThrow(/^401 Unauthorized$/)
  await expect(withToken(loginCredentials(logins().made)('gitlab'), { signal }, refuse)).rejects.toThrow(
    /^401 Unauthorized$/,
  )
})
