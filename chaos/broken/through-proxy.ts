import { DatabaseProxy } from '../faults/database-proxy.ts'
import type { Rewrite } from './rewrites.ts'

const DEFAULT_PORT = 27017

/** A proxy can't stand before the server of a connection string. */
export class NoProxy extends Error {
  override readonly name = 'NoProxy'
  constructor(found: string) {
    super(
      `a proxy rewrites what replicas send: expected mongodb:// with one host and without TLS, got ${found}. ` +
        'Correct MONGODB_URI, or leave it out to use a local database',
    )
  }
}

/**
 * The address of a server with a proxy before it that rewrites commands.
 * @throws NoProxy for more than one host, TLS, `mongodb+srv://`
 */
export async function throughProxy(uri: string, rewrite: Rewrite): Promise<{ uri: string; proxy: DatabaseProxy }> {
  const url = oneServer(uri)
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1')
  const proxy = await DatabaseProxy.start(url.port === '' ? DEFAULT_PORT : Number(url.port), { host, rewrite })
  url.host = `127.0.0.1:${proxy.port}`
  // A server's own word for its address would lead past the proxy, and what is compressed can't be rewritten.
  url.searchParams.set('directConnection', 'true')
  url.searchParams.delete('compressors')
  return { uri: url.href, proxy }
}

function oneServer(uri: string): URL {
  const url = URL.canParse(uri) ? new URL(uri) : undefined
  // The driver takes several hosts with ports, which is no URL.
  if (!url || /[,%]/.test(url.hostname)) throw new NoProxy('several hosts, or none with a port')
  if (url.protocol !== 'mongodb:') throw new NoProxy(url.protocol)
  const secured = ['tls', 'ssl'].find((option) => url.searchParams.get(option) === 'true')
  if (secured) throw new NoProxy(`${secured}=true`)
  return url
}
