import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { LoginProfile } from '../../packages/state/src/logins/index.js'

export const key = (byte: number) => Buffer.alloc(32, byte).toString('base64')
export const KEYS = `k1=${key(1)}`
export const ana = { by: 'ana' }

/** A system that ends the former session of a user with each login. */
export async function startCrm() {
  const sessions = new Map<string, string>()
  const requests: { url: string; body: string; headers: IncomingMessage['headers'] }[] = []
  const state = {
    tokens: 0,
    logins: 0,
    refused: 0,
    answer: undefined as undefined | { status: number; body: string; headers?: Record<string, string> },
  }
  const server: Server = createServer(async (request, response) => {
    let body = ''
    for await (const part of request) body += part
    const send = (status: number, text: string, headers: Record<string, string> = {}) =>
      response.writeHead(status, headers).end(text)
    if (request.url?.startsWith('/login')) {
      requests.push({ url: request.url, body, headers: request.headers })
      state.logins += 1
      if (state.answer) return send(state.answer.status, state.answer.body, state.answer.headers)
      const user = new URLSearchParams(body).get('username') ?? 'all'
      state.tokens += 1
      const token = `token-${state.tokens}-of-${user}`
      sessions.set(user, token)
      return send(200, JSON.stringify({ data: { access_token: token }, expires_in: 3600 }))
    }
    const token = request.headers.authorization?.replace('Bearer ', '')
    if (![...sessions.values()].includes(token ?? '')) {
      state.refused += 1
      return send(401, 'who?')
    }
    return send(200, `hello ${token}`)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    origin,
    state,
    requests,
    endAll: () => sessions.clear(),
    close: () => new Promise((resolve) => server.close(resolve)),
  }
}

/** Its profile: one login for each user. */
export const profileFor = (origin: string): LoginProfile => ({
  name: 'crm',
  url: `${origin}/login`,
  form: true,
  body: { username: '{{user}}', password: '{{secret.password}}' },
  token: 'data.access_token',
  expiresIn: 'expires_in',
  secrets: { password: 'hunter2&x' },
})
