import { execFileSync, spawn } from 'node:child_process'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'

/** What a request gets instead of git's answer. */
export type Intercept = (request: IncomingMessage, response: ServerResponse) => boolean | Promise<boolean>

/** `git http-backend` behind HTTP, as servers of git run it, with a token. */
export interface GitHttp extends AsyncDisposable {
  readonly url: string
  /** The tokens that it takes now; empty: everyone may read. */
  tokens: string[]
  /** Where it returns true, it has answered itself. */
  intercept: Intercept
  /** Whether it speaks version 2 of the protocol, which hands out any commit. */
  version2: boolean
  readonly requests: string[]
  /** The `Authorization` headers that came. */
  readonly authorizations: (string | undefined)[]
}

/** Serves the repositories of a folder. */
export async function gitHttp(root: string): Promise<GitHttp> {
  const backend = join(execFileSync('git', ['--exec-path'], { encoding: 'utf8' }).trim(), 'git-http-backend')
  const server = createServer(async (request, response) => {
    const { authorization } = request.headers
    state.requests.push(`${request.method} ${request.url}`)
    state.authorizations.push(authorization)
    if (await state.intercept(request, response)) return
    const token = Buffer.from(authorization?.replace(/^Basic /, '') ?? '', 'base64')
      .toString()
      .split(':')[1]
    if (state.tokens.length > 0 && !state.tokens.includes(token ?? ''))
      return void response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="git"' }).end('HTTP Basic: Access denied')
    const [path, query = ''] = (request.url ?? '').split('?')
    const cgi = spawn(backend, {
      env: {
        PATH: process.env['PATH'],
        GIT_PROJECT_ROOT: root,
        GIT_HTTP_EXPORT_ALL: '1',
        PATH_INFO: decodeURIComponent(path!),
        QUERY_STRING: query,
        REQUEST_METHOD: request.method,
        CONTENT_TYPE: request.headers['content-type'] ?? '',
        HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
        ...(state.version2 ? { GIT_PROTOCOL: String(request.headers['git-protocol'] ?? '') } : {}),
      },
      stdio: ['pipe', 'pipe', 'ignore'],
    })
    cgi.stdin.on('error', () => {})
    request.pipe(cgi.stdin)
    let head = Buffer.alloc(0)
    cgi.stdout.on('data', (chunk: Buffer) => {
      if (response.headersSent) return void response.write(chunk)
      head = Buffer.concat([head, chunk])
      const end = head.indexOf('\r\n\r\n')
      if (end === -1) return
      const headers = head
        .toString('latin1', 0, end)
        .split('\r\n')
        .map((line) => line.split(': '))
      const status = headers.find(([name]) => name === 'Status')?.[1]
      for (const [name, value] of headers) if (name !== 'Status') response.setHeader(name!, value!)
      response.writeHead(Number.parseInt(status ?? '200', 10))
      response.write(head.subarray(end + 4))
    })
    cgi.on('close', () => response.end())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const state: GitHttp = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    tokens: [],
    intercept: () => false,
    version2: true,
    requests: [],
    authorizations: [],
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return state
}
