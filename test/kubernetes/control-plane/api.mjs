import { request } from 'node:https'

const ANSWER_TIMEOUT_MS = 30_000
const APPLY = { fieldManager: 'phaselock-control-plane', force: 'true' }

/** What little of the API starting a control plane needs; tests use the real client. */
export class Api {
  constructor(server, ca, token) {
    this.server = server
    this.ca = ca
    this.token = token
  }

  /** The object at a path, `undefined` while it isn't there or the server doesn't answer. */
  async get(path) {
    const { status, text } = await this.#send('GET', path).catch(() => ({ status: 0, text: '' }))
    if (status !== 200) return undefined
    return text.startsWith('{') ? JSON.parse(text) : text
  }

  /** Creates an object or changes it to what the text, YAML or JSON, says (server-side apply). */
  async apply(path, text) {
    const answer = await this.#send('PATCH', `${path}?${new URLSearchParams(APPLY)}`, text)
    if (answer.status >= 300) throw new Error(`PATCH ${path}: ${answer.status} ${answer.text}`)
  }

  #send(method, path, body) {
    const { promise, resolve, reject } = Promise.withResolvers()
    const headers = { authorization: `Bearer ${this.token}`, 'content-type': 'application/apply-patch+yaml' }
    const options = { method, ca: this.ca, headers, agent: false, timeout: ANSWER_TIMEOUT_MS }
    const call = request(new URL(path, this.server), options, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (part) => {
        text += part
      })
      response.on('end', () => resolve({ status: response.statusCode, text }))
      response.on('error', reject)
    })
    call.on('timeout', () => call.destroy(new Error(`${method} ${path}: no answer`)))
    call.on('error', reject)
    call.end(body)
    return promise
  }
}
