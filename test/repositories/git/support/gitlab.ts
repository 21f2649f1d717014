import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestRepository } from './repository.js'

/**
 * A server with the five calls of GitLab's REST API that a source makes, on a bare repository, with pages of 20. Its answers have the fields,
 * messages and pages of GitLab's own code, read in November 2026: its entities of trees and branches, and its keyset pager.
 */
export interface Gitlab extends AsyncDisposable {
  /** The project's URL, `http://.../group/sub/project`. */
  readonly url: string
  tokens: string[]
  /** False: an instance without keyset pages for trees, which numbers its pages whatever it is asked for. */
  hasKeyset: boolean
  intercept: (request: IncomingMessage, response: ServerResponse, count: number) => boolean
  readonly requests: string[]
}

const PAGE = 20

const branchOf = (name: string, id: string) => ({
  ...{ name, commit: { id }, merged: false, protected: name === 'main', default: name === 'main' },
  ...{ developers_can_push: false, developers_can_merge: false, can_push: true, web_url: `/-/tree/${name}` },
})

export async function gitlab(repository: TestRepository): Promise<Gitlab> {
  const project = `/api/v4/projects/${encodeURIComponent('group/sub/project')}`
  const branches = async () => {
    const lines = await repository.git('for-each-ref', '--format=%(refname:short) %(objectname)', 'refs/heads')
    return lines === '' ? [] : lines.split('\n').map((line) => line.split(' ') as [string, string])
  }
  const server = createServer(async (request, response) => {
    state.requests.push(request.url!)
    if (state.intercept(request, response, state.requests.length)) return
    const answer = (status: number, body: unknown, headers: Record<string, string> = {}) =>
      response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
    const token = request.headers.authorization?.replace('Bearer ', '')
    if (state.tokens.length > 0 && !state.tokens.includes(token ?? ''))
      return answer(401, { message: '401 Unauthorized' })
    const url = new URL(request.url!, state.url)
    if (!url.pathname.startsWith(project)) return answer(404, { message: '404 Project Not Found' })
    const path = url.pathname.slice(project.length)
    const all = await branches()
    if (path === '') {
      const isEmpty = all.length === 0
      return answer(200, { id: 7, default_branch: isEmpty ? null : 'main', empty_repo: isEmpty })
    }
    if (path === '/repository/branches')
      return answer(
        200,
        all.slice(0, Number(url.searchParams.get('per_page') ?? 20)).map(([name, id]) => branchOf(name, id)),
        {
          'x-total': String(all.length),
        },
      )
    const branch = /^\/repository\/branches\/(.+)$/.exec(path)?.[1]
    if (branch !== undefined) {
      const found = all.find(([name]) => name === decodeURIComponent(branch))
      return found ? answer(200, branchOf(...found)) : answer(404, { message: '404 Branch Not Found' })
    }
    if (path === '/repository/tree') {
      const { searchParams } = url
      if (searchParams.get('pagination') !== 'keyset' || searchParams.get('recursive') !== 'true')
        return answer(400, { error: 'the tests expect keyset pages of the whole tree' })
      const listed = await repository.git('ls-tree', '-r', '-t', '-z', searchParams.get('ref')!).catch(() => undefined)
      if (listed === undefined) return answer(404, { message: '404 Tree Not Found' })
      const nodes = listed
        .split('\0')
        .filter(Boolean)
        .map((line) => {
          const [head = '', name = ''] = line.split('\t')
          const [mode, type, id] = head.split(' ')
          return { id, name: name.split('/').at(-1), type, path: name, mode }
        })
      const after = searchParams.get('page_token')
      const number = Number(searchParams.get('page') ?? 1)
      const from = !state.hasKeyset
        ? (number - 1) * PAGE
        : after === null
          ? 0
          : nodes.findIndex(({ id, path: at }) => `${id} ${at}` === after) + 1
      const page = nodes.slice(from, from + PAGE)
      const last = page.at(-1)
      // As behind a proxy: the host that the server believes to have.
      const next = new URL(`http://internal.example${url.pathname}${url.search}`)
      if (!state.hasKeyset) next.searchParams.set('page', String(number + 1))
      else if (last) next.searchParams.set('page_token', `${last.id} ${last.path}`)
      // With keysets each full page names a next one, which may be empty.
      const hasNext = state.hasKeyset ? page.length === PAGE : from + PAGE < nodes.length
      const link = hasNext ? { link: `<${next}>; rel="next", <http://internal.example/>; rel="first"` } : undefined
      return answer(200, page, link)
    }
    const blob = /^\/repository\/blobs\/([0-9a-f]+)\/raw$/.exec(path)?.[1]
    if (blob !== undefined) {
      const bytes = await repository.output('cat-file', 'blob', blob).catch(() => undefined)
      return bytes === undefined ? answer(404, { message: '404 Blob Not Found' }) : response.writeHead(200).end(bytes)
    }
    return answer(404, { error: '404 Not Found' })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const state: Gitlab = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/group/sub/project`,
    tokens: [],
    hasKeyset: true,
    intercept: () => false,
    requests: [],
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return state
}
